"""Internal names of Triton that the plug-in uses, each with what it is for (doors/internals.py)."""

from __future__ import annotations

LAUNCHES = "launches"
NAMES = {
    "triton.runtime.jit.create_function_from_signature": "arrays as arguments",
    "triton.runtime.jit.JITFunction": LAUNCHES,
    "triton.runtime.cache.get_cache_manager": LAUNCHES,
    "triton.compiler.compiler.ASTSource": LAUNCHES,
    "triton.runtime.autotuner.Autotuner": "autotuning",
    "triton.testing.do_bench": "benchmarks",
    "triton.runtime._allocation._allocator": "scratch memory of a kernel",
    "triton.runtime._allocation._profile_allocator": "scratch memory of a profile",
    "triton._utils.find_paths_if": "mm.triton.compile and launch",
    "triton._utils.get_iterable_path": "mm.triton.compile and launch",
}
