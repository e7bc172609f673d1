"""The suites that are known by name, and the reasons for what does not pass in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PASSED, SKIPPED, UNSUPPORTED, LIMIT, TIME, WRONG, OPEN = (
    "passed", "skipped by the suite", "not supported", "the suite's own", "too long", "wrong", "not explained",
)  # fmt: skip
CLASSES = (PASSED, SKIPPED, UNSUPPORTED, LIMIT, TIME, WRONG, OPEN)


@dataclass(frozen=True)
class Suite:
    """Files are below the folder that is given. files: pytest's arguments, or patterns of scripts. options: of pytest.
    ignore: paths that are no part of it."""

    files: tuple[str, ...]
    source: str
    options: tuple[str, ...] = ()
    scripts: bool = False
    ignore: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


_TRITON = "github.com/triton-lang/triton"
SUITES = {
    "triton-core": Suite(("test/unit/language/test_core.py",), _TRITON, ("--device", "cuda")),
    "triton-language": Suite(
        ("test/unit/language", "test/unit/runtime", "test/unit/cuda"), _TRITON, ("--device", "cuda"),
        ignore=("test/unit/language/test_core.py",),
    ),
    "triton-descriptors": Suite(
        ("test/unit/language/test_tensor_descriptor.py", "test/unit/language/test_warp_specialization.py"), _TRITON,
        ("--device", "cuda"),
    ),
    "triton-matmul": Suite(
        tuple(f"test/unit/language/test_{name}.py" for name in ("matmul", "pipeliner", "clc")), _TRITON, ("--device", "cuda")
    ),
    "triton-tutorials": Suite(("tutorials/0[1-8]-*.py",), _TRITON, scripts=True, environment={"MPLBACKEND": "agg"}),
    "gluon": Suite(
        ("test/gluon",), _TRITON, ("--device", "cuda"),
        ignore=tuple(f"test/gluon/test_{name}.py" for name in ("frontend", "consan", "fpsan")),  # frontend: texts alone
    ),
    "gluon-consan": Suite(("test/gluon/test_consan.py",), _TRITON, ("--device", "cuda")),
    "gluon-fpsan": Suite(("test/gluon/test_fpsan.py",), _TRITON, ("--device", "cuda")),
    "gluon-tutorials": Suite(("tutorials/gluon",), _TRITON, environment={"MPLBACKEND": "agg"}),
    "liger": Suite(
        ("test/transformers",), "github.com/linkedin/Liger-Kernel", ignore=("test/transformers/test_cutile_rope.py",)  # no Triton
    ),
    "fla": Suite(("tests/ops", "tests/modules"), "github.com/fla-org/flash-linear-attention"),
    "cupy": Suite(
        tuple(f"tests/cupy_tests/{name}_tests" for name in ("core", "creation", "indexing", "logic", "manipulation")),
        "github.com/cupy/cupy",
    ),
    "helion": Suite(("test/test_examples.py",), "github.com/pytorch/helion"),
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """A pattern of the message (and of the case's name) and what it means. why: may use the pattern's groups."""

    kind: str
    message: str
    why: str
    case: str = ""


REASONS = (
    Reason(LIMIT, r"Wrong error message!", "expects words of another Triton; fails on an H100 too", r"test_const\["),
    Reason(LIMIT, r"Tensor-likes are not close", "the reference is torch's product on the CPU: one element beyond the tolerance; "
           "the same launch has an H100's bits", r"test_scaled_dot\["),
    Reason(TIME, "", "65,536,000 blocks of 1024 threads", "test_load_store_same_ptr"),
    Reason(TIME, r"TimeIsUp|^LimitReached.*seconds|limit reached.*seconds", "longer than the time a case has"),
    Reason(UNSUPPORTED, r"\.reqnctapercluster cannot be run|clusters of", "clusters of blocks"),
    Reason(UNSUPPORTED, r"is instrumented \((\w+)\)", r"kernels that Triton instruments (\1)"),
    Reason(UNSUPPORTED, r"UnsupportedError: (?:\S+ \(\S+\): |\S+:\d+:\d+: )*(\S+) cannot be run", r"`\1`"),
    Reason(UNSUPPORTED, r"UnsupportedError: .*: (\S+) is not supported", r"`\1`"),
    Reason(UNSUPPORTED, r"UnsupportedError: ([^\n]{1,100})", r"\1"),
    Reason(UNSUPPORTED, r"Unsupported dtype|has no attribute '|cudaErrorNotSupported|cupy/complex\.cuh|_ndarray_base",
           "methods of ufuncs, structures, pinned memory and what else only CuPy's compiled classes have", r"cupy_tests"),
    Reason(UNSUPPORTED, r"Backend device 'nvidia' is not active", "NVIDIA's own driver of Triton, asked for by name"),
    # What follows was looked at case by case; it would be so on a GPU too, or needs what no emulator has.
    Reason(LIMIT, r"count.*ld\.relaxed", "counts instructions in PTX of another Triton", "test_atomic_poll"),
    Reason(LIMIT, r"Could not find `libcublas|No valid algorithm found by cublas", "needs cuBLAS"),
    Reason(LIMIT, r"No such file.*third_party/nvidia", "needs all of Triton's sources beside its folder `python`"),
    Reason(LIMIT, r"not equal", "of a later Triton, in which `tl.cat` keeps the order", r"test_cat\[True"),
    Reason(LIMIT, r"CHECK: expected string not found|DID NOT RAISE Compilation", "the text of another Triton's compiler"),
    Reason(LIMIT, r"out of bounds: st\.global.* byte 12", "stores behind the end of its array", "test_int_annotation"),
    Reason(LIMIT, r"out of bounds: ld\.global.* byte 4 of argument 0", "a race in the test: warp 1 reads what warp 0 stored, and "
           "takes it for an index", r"test_if_call\[attribute_jit\]"),
    Reason(LIMIT, r"Not equal to tolerance", "five products in bf16 are coarser than the tolerance; NumPy's, rounded alike, give "
           "the same bits", r"test_scan2d\[cumprod-bfloat16"),
    Reason(LIMIT, r"Not equal to tolerance", "sums in bf16 are coarser than the tolerance; torch's, rounded alike, are the same "
           "bits", r"test_scan2d\[cumsum-bfloat16"),
    Reason(LIMIT, r"Tensor-likes are not close", "the reference is torch's product on the CPU: one unit of bf16's last place "
           "apart in 0.1 % of the elements", r"09-tma-gather-scatter.*fused_gather_scatter"),
    Reason(LIMIT, r"no attribute 'ReductionOrdering'", "of another Triton, which has `tl.ReductionOrdering`"),
    Reason(LIMIT, r"cuobjdump.*non-zero", "Triton's own disassembler, of CUDA 13.1, does not know sm_107", r"test_histogram\["),
    Reason(LIMIT, r"triton-128", "looks for the words `.target sm_100`", r"test_softmax_vectorization"),
    Reason(LIMIT, r"too many indices for tensor of rank 0", "of a later Triton, in which a scalar takes new dimensions"),
    Reason(LIMIT, r"out of bounds: (cp\.async|ld).* \([ab]_scale\)", "reads scale factors behind the end of their array",
           r"test_blocked_scale_mxfp"),
    Reason(LIMIT, r"cannot be accessed from Triton \(cpu tensor", "a descriptor of memory of the host, which the kernel does not "
           "read", r"test_descriptor_shape"),
    Reason(LIMIT, r"Tensor-likes are not close", "the reference is torch's product on the CPU, compared with 0.00001; "
           "the kernel's bits are those of `mm.matmul`", r"12-cluster-launch-control.*test_op\["),
    Reason(LIMIT, r"assert None is not None", "its kernel only reads what was fenced; this Triton's ConSan asks for a fence "
           "behind writes alone, and its compiler inserts that", r"test_ws_join_publishes_proxy_generation\[missing"),
    Reason(LIMIT, r"Block pointers have been removed", "block pointers, which this Triton no longer has"),
    Reason(LIMIT, r"key contains names that are not kernel arguments", "keys of autotuners that this Triton refuses"),
    Reason(LIMIT, r"LlamaRotaryEmbedding.*unexpected keyword argument 'device'", "written for an older transformers"),
)  # fmt: skip


def classified(case: str, outcome: str, message: str) -> tuple[str, str]:
    """(class, reason) of a case. outcome: as outcomes.py has them."""
    if outcome in ("passed", "xfailed"):
        return PASSED, "" if outcome == "passed" else "fails as expected"
    if outcome == "skipped":
        return SKIPPED, message.removeprefix("Skipped: ").split("\n")[0][:120]
    for reason in REASONS:
        found = re.search(reason.message, message)
        if found and re.search(reason.case, case):
            return reason.kind, found.expand(reason.why)
    return OPEN, message.split("\n")[0][:160]
