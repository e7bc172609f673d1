"""Hints in the words of the language in which a program is written: `__syncthreads()` for CUDA C++, `bar.sync` for PTX.

A rule's hint is written once, with the names of PTX. A table for each language replaces parts of the hint. Parts without a
replacement stay, because such a program can use them only through inline assembly.
"""

import re
from collections.abc import Mapping

BETWEEN = "between the two"  # in a hint: of a finding with two lines of a program these are named
_BARRIER = "put a barrier (__syncthreads(), bar.sync) between the two, that all threads of both pass"
_WARP = "put bar.warp.sync (__syncwarp()) between the two, that all threads of both pass"
_MASK = "check the index arithmetic and the mask of the access"
_STRONG_READ = "read it with ld.relaxed or ld.volatile"
_ADD, _RELEASE = "atom.add or red.add", "atom.exch and .release"
_FLAG = "st.release.gpu (or fence and atomic) and ld.acquire.gpu"
_CLUSTER = "(cluster.sync(), barrier.cluster.arrive and wait)"
WIDE_INDEX = "compute the index in 64 bits: widen a factor before the product"
_ALIGNMENTS = (8, 16, 32, 64, 128, 256, 512, 1024)
# Of each language, longer texts before those that they contain.
TERMS: Mapping[str, Mapping[str, str]] = {
    "triton": {
        _BARRIER: "put tl.debug_barrier() between the two",
        _WARP: "put tl.debug_barrier() between the two",
        _STRONG_READ: "read it with tl.load(volatile=True) or an atomic",
        "write with atomics": "write with tl.atomic_add and its kin, or let each program write elements of its own",
        _FLAG: 'tl.atomic_xchg(flag, 1, sem="release") and tl.atomic_cas(flag, 1, 1, sem="acquire")',
        _ADD: "tl.atomic_add",
        _RELEASE: 'tl.atomic_xchg(lock, 0, sem="release")',
        WIDE_INDEX: "compute the index in 64 bits: .to(tl.int64) of a factor before the product",
        _MASK: "check the offsets, and give the tl.load or tl.store a mask that leaves out what is beyond",
    },
    "numba": {
        _BARRIER: "put cuda.syncthreads() between the two, that all threads of the block reach",
        _WARP: "put cuda.syncwarp() between the two, that all threads of the warp reach",
        _STRONG_READ: "read it with an atomic (cuda.atomic.max)",
        "write with atomics": "write with cuda.atomic.add and its kin",
        _FLAG: "cuda.threadfence() and cuda.atomic.exch on a flag, and cuda.threadfence() after the read of the flag",
        _ADD: "cuda.atomic.add",
        _RELEASE: "cuda.threadfence() and cuda.atomic.exch",
        _MASK: "compare the index with the array's size before the access (if i < x.size)",
        "bar.sync": "cuda.syncthreads()",
    },
    "cuda": {
        _BARRIER: "put __syncthreads() between the two, that all threads of the block reach",
        _WARP: "put __syncwarp() between the two, that all threads of the warp reach",
        _STRONG_READ: "read it as volatile, or with cuda::atomic_ref",
        "write with atomics": "write with atomicAdd and its kin",
        _FLAG: "__threadfence() and an atomic on a flag, and __threadfence() after the read of the flag (or cuda::atomic_ref)",
        _ADD: "atomicAdd",
        _RELEASE: "__threadfence() and atomicExch (or cuda::atomic_ref)",
        WIDE_INDEX: "compute the index in 64 bits: (long long) or size_t of a factor before the product",
        _MASK: "compare the index with the size before the access (if (i < n))",
        _CLUSTER: "(cluster.sync())",
        "barrier.cluster (cluster.sync())": "cluster.sync()",
        "vote.sync.ballot of its condition (__ballot_sync)": "__ballot_sync of its condition",
        "fence.proxy.async (of this state space)": "cuda::ptx::fence_proxy_async of its state space (CUTLASS: "
        "fence_view_async_shared())",
        "fence.proxy.async": "cuda::ptx::fence_proxy_async (CUTLASS: fence_view_async_shared())",
        "cp.async.bulk.wait_group.read": "cuda::ptx::cp_async_bulk_wait_group_read (CUTLASS: tma_store_wait<N>())",
        "cp.async.bulk.wait_group": "cuda::ptx::cp_async_bulk_wait_group",
        "cp.async.bulk.commit_group": "cuda::ptx::cp_async_bulk_commit_group (CUTLASS: tma_store_arrive())",
        "cp.async.wait_group or cp.async.wait_all": "__pipeline_wait_prior(N) (CUTLASS: cp_async_wait<N>())",
        "cp.async.wait_group": "__pipeline_wait_prior(N) (CUTLASS: cp_async_wait<N>())",
        "cp.async.wait_all": "__pipeline_wait_prior(0)",
        "cp.async.commit_group": "__pipeline_commit() (CUTLASS: cp_async_fence())",
        "wgmma.wait_group 0": "wgmma.wait_group 0 (CUTLASS: warpgroup_wait<0>())",
        "wgmma.wait_group": "wgmma.wait_group (CUTLASS: warpgroup_wait<N>())",
        "wgmma.commit_group": "wgmma.commit_group (CUTLASS: warpgroup_commit_batch())",
        "wgmma.fence.sync.aligned": "wgmma.fence (CUTLASS: warpgroup_arrive())",
        "wgmma.fence": "wgmma.fence (CUTLASS: warpgroup_arrive())",
        "fence.proxy.async.global": "cuda::ptx::fence_proxy_async(cuda::ptx::space_global)",
        **dict.fromkeys(("fence.mbarrier_init.release.cluster", "fence.mbarrier_init"), "cuda::ptx::fence_mbarrier_init "
                        "(CUTLASS: fence_barrier_init())"),
        "mbarrier.init's count": "the count that its init was given (init of a cuda::barrier)",
        "mbarrier.init": "mbarrier.init (init of a cuda::barrier)",
        **{f".align {n}": f"alignas({n})" for n in _ALIGNMENTS},
        "bar.warp.sync": "__syncwarp()",
        "bar.sync": "__syncthreads()",
    },
}  # fmt: skip
_OF_PTX = re.compile(r"\b(?:mbarrier|wgmma|wmma|mma|cp|fence|barrier|bar|tensormap|setmaxnreg|ldmatrix|cvta|st|ld)\.[a-z:_]+")
_COMPILER = "; where no inline assembly does this, the compiler made it, and its authors should know"
_ENDINGS = {".py": "triton", ".pyx": "triton", ".rs": "", ".jl": ""}
_NVVM = "NVIDIA NVVM Compiler"  # Numba's; Triton has LLVM's own


def language(file: str, ptx: str) -> str:
    """The language of a line of a program: "triton", "numba", "cuda", or "" for other languages, which get the names of PTX.

    file: name of the source file, as .loc gives it. ptx: the beginning of the PTX text.
    """
    ending = file[file.rfind(".") :].lower() if "." in file else ""
    found = _ENDINGS.get(ending, "cuda")
    return "numba" if found == "triton" and _NVVM in ptx else found


def in_words(text: str, language: str, lines: str = "") -> str:
    """A hint in the words of a language. lines: `between a.py:7 and :9` if both lines are known, to replace "between
    the two".
    """
    terms = TERMS.get(language, {})
    if terms:
        names = re.compile("|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True)))
        text = names.sub(lambda found: terms[found[0]], text)
    if lines:
        text = text.replace(BETWEEN, lines, 1)
    return text + _COMPILER if language in ("triton", "numba") and _OF_PTX.search(text) else text


def between(here: tuple[str, int], there: tuple[str, int]) -> str:
    """The text `between a.py:7 and :9` for two places, each a file and a line."""
    (file, line), (other, last) = sorted((here, there))
    if (file, line) == (other, last):
        return f"between the two accesses of {file}:{line}"
    return f"between {file}:{line} and {'' if file == other else other}:{last}"
