"""What `profile=` counts, against the counters of an NVIDIA H200 as Nsight Compute reads them: single accesses, and kernels."""

import json
from functools import cache

import numpy as np
import pytest

import mmulator as mm
from mmulator.observation.record.profile.data import Traffic
from mmulator.observation.record.profile.launch import LaunchProfile
from tests.data.counter_vectors import DATA, KERNEL_METRICS, KERNELS, forms, launches
from tests.support import corpus

# Requests of the chip besides the access: of the wait for cp.async, and of the fence in an acquire or a release.
BESIDES = {"cp.async.c": 1, "ld.acquire": 1, "st.release": 1}
# What cp.async writes to shared memory depends on what the GPU's caches hold.
COPIED = ("requests", "sectors")
# Launches of scattered lanes in which the chip had 1 to 3 sectors more: it did not put both halves of the warp together.
APART = {("red.global.inc.u32", 4), ("atom.global.add.u64", 3), ("atom.global.add.u64", 4), ("atom.global.and.b32", 6),
         ("red.global.max.s64", 0)}  # fmt: skip


def in_(profile: LaunchProfile, *spaces: str) -> Traffic:
    return sum((profile.total.in_(s) for s in spaces), Traffic())


def counted(profile: LaunchProfile) -> dict[str, int]:
    """The sums of a profile by the names of METRICS."""
    memory, shared, bulk = in_(profile, "global", "local"), in_(profile, "shared"), in_(profile, "bulk")
    return {
        "requests": memory.requests, "sectors": memory.units, "wavefronts": shared.units,
        "conflicts": shared.units - shared.ideal, "bulk": bulk.units,
    }  # fmt: skip


@pytest.mark.parametrize("name", list(forms()))
def test_accesses_count_as_on_a_gpu(name: str) -> None:
    kernel = mm.Module.load(forms()[name].kernel())["k"]
    wrong, number = [], 0
    for number, (table, counts) in enumerate(launches(name), 1):
        profile = kernel.launch(1, 32, [table.reshape(-1), np.zeros(DATA, np.uint8)], profile=True).profile
        assert profile is not None
        mine = counted(profile)
        mine["requests"] += BESIDES.get(name[:10], 0)
        compared = COPIED if name.startswith("cp.async.c") else counts
        apart = "sectors" if (name, number - 1) in APART else ""
        wrong += [(number, k, mine[k], counts[k]) for k in compared if mine[k] != counts[k] and k != apart]
    assert number >= 7 and not wrong, (number, wrong)


# kernels --------------------------------------------------------------------------------------------------------------
COPY = "cp.async.c"


def of_kernel(profile: LaunchProfile) -> dict[str, int]:
    """The sums of a profile that are compared with those of a kernel on a GPU."""
    copied = sum(i.work.in_("shared").units for i in profile.instructions if COPY in i.text)
    memory = in_(profile, "global", "local")
    return {
        "requests": memory.requests, "sectors": memory.units, "theoretical sectors": in_(profile, "global").units,
        "wavefronts": in_(profile, "shared").units - copied, "matrix": in_(profile, "matrix").units,
    }  # fmt: skip


@cache
def of_chip() -> dict[str, dict[str, tuple[int, ...]]]:
    """The sums of kernels on a GPU; several where there are several counters.

    Sectors and wavefronts beside the code, as Nsight Compute shows them, are those of the accesses. The counters of the chip
    depend on how accesses of several warps meet; of atomic operations and cp.async they are exact.
    """
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, numbers in json.loads(KERNELS.read_text()).items():
        c = dict(zip(KERNEL_METRICS, numbers))
        sectors = "sectors" if c["atomic sectors"] or c["copied wavefronts"] else "theoretical sectors"
        waves = c["theoretical wavefronts"] - c["matrix"] - c["copied wavefronts"]
        found[name] = {sectors: (c[sectors], c["theoretical sectors"]), "wavefronts": (waves,), "matrix": (c["matrix"],)}
        if c["requests"] >= 0:
            found[name]["requests"] = (c["requests"],)
    return found


# Kernels of which the GPU executes other accesses than the PTX has, by the reason.
DIFFER = {
    "ptxas joins accesses, leaves some out, or executes both ways of a branch": """
        attention_causal_sm80 attention_causal_sm90 attention_odd_sm80 attention_warpgroups_sm90 gemm_ieee_sm80 reductions_f32
        reductions_f16 int_reductions histogram transpose_f32 wmma_shared_tf32 divergent_loop mandelbrot struct_parameters
        accesses f32_library_edges sgemm_tiled sgemm_tiled_lineinfo numba_matmul breadth_first variables hints""",
    "ptxas keeps local memory in registers, or spills registers": """
        calls function_pointers virtual_calls calling results local_arrays""",
    "the driver compiles with optimisation what nvcc wrote for debugging": """
        divergent_loop_debug nested_branches_debug shuffles_debug block_reductions_debug early_exit_debug calls_debug
        function_pointers_debug virtual_calls_debug mandelbrot_debug constants_debug shared_mix_debug generic_pointers_debug
        local_arrays_debug struct_parameters_debug identity_debug""",
    "warps wait for one another": "spin_flag warp_lock look_back_scan look_back_scan_lineinfo layernorm_backward",
    "an atomic operation is a loop with other warps, or done by one lane for all": """
        atomics integer_atomics float_atomics library_barriers generic_pointers cluster_sums""",
    "bytes of transposed matrices": "wmma_s8_32x8_rr wmma_s8_32x8_cr wmma_u8_8x32_cr wmma_u8_8x32_cc",
    "steps of tensormap.replace are joined": "gemm_descriptor_f16_sm90 gemm_descriptor_bf16_sm90 made_here",
    "shared memory of another block is not counted there": "cluster_exchange",
    "the GPU has code of its own for printf": "printing",
}


@pytest.mark.parametrize("name", list(of_chip()))
def test_kernels_count_as_on_a_gpu(name: str) -> None:
    profile = corpus.launch(name, profile=True).report.profile
    assert profile is not None
    mine = of_kernel(profile)
    wrong = {k: (mine[k], chip) for k, chip in of_chip()[name].items() if mine[k] not in chip}
    assert bool(wrong) == any(name in names.split() for names in DIFFER.values()), wrong
