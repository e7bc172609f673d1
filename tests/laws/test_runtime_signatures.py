"""Rows of CUDA's runtime have the arguments of the C prototypes: as many, and of the same sizes."""

import re
import sys
from pathlib import Path

import pytest

from mmulator.doors.cudart import rows, table

WIDER = {"cudaMemPrefetchAsync": {3}}  # arguments that CUDA 12 has otherwise: one word for both
LONGER = {"cudaMemcpyBatchAsync": 1}  # arguments that CUDA 12 has more
HANDLES = re.compile(
    r"^(cuda(Stream|Event|Graph|GraphNode|GraphExec|MemPool|Library|Kernel|Function|UserObject|Array|MipmappedArray|Host|"
    r"LogsCallbackHandle|StreamCallback|HostFn|AsyncCallbackHandle)(_t|Handle)?|cudaAsyncCallback|CUstream|cudaLogsCallback_t)$"
)
STRUCTS = {"dim3": "qq", "cudaMemLocation": "q", "cudaExtent": "E", "cudaPitchedPtr": "P"}  # by value
NUMBERS = {
    "size_t": "q", "unsigned long long": "q", "unsigned int": "u", "int": "i", "unsigned": "u",
    "cudaStreamAttrID": "e", "cudaKernelNodeAttrID": "e", "cudaLaunchAttributeID": "e",
}  # fmt: skip


def header() -> Path | None:
    places = [Path("/usr/local/cuda/include"), *(Path(p, "nvidia/cu13/include") for p in sys.path)]
    return next((p / "cuda_runtime_api.h" for p in places if (p / "cuda_runtime_api.h").exists()), None)


def letters(argument: str) -> str:
    """The letters of an argument of C: `e` for an enumeration, whose sign is open."""
    text = re.sub(r"__dv\([^)]*\)|=.*", "", argument).strip()
    if "*" in text or "[" in text or "&" in text:
        return "p"
    words = [w for w in text.split() if w not in ("const", "struct")]
    if words[0] == "enum":
        return "e"
    kind = " ".join(words[:-1]) or words[0]
    if kind in STRUCTS:
        return STRUCTS[kind]
    if kind in NUMBERS:
        return NUMBERS[kind]
    assert HANDLES.match(kind), f"{argument}: what is {kind}?"
    return "p"


def prototypes(path: Path, names: set[str]) -> dict[str, set[str]]:
    """Signatures of functions by name, one for each time that the function is declared."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    found: dict[str, set[str]] = {}
    for name, arguments in re.findall(r"cudaError_t CUDARTAPI\s+(cuda\w+)\s*\(([^;]*)\)\s*;", text):
        if name not in names:
            continue
        parts = [letters(a) for a in re.split(r",(?![^(]*\))", arguments) if a.strip() not in ("", "void")]
        found.setdefault(name, set()).add("".join(parts))
    return found


SIZES = {"p": "8", "q": "8", "u": "u", "i": "i", "e": "e", "E": "E", "P": "P"}


def agree(mine: str, c: str, wider: set[int]) -> bool:
    return len(mine) == len(c) and all(
        SIZES[a] == SIZES[b] or (b == "e" and a in "ui") or (n in wider and a in "pq") for n, (a, b) in enumerate(zip(mine, c))
    )


@pytest.mark.skipif(header() is None, reason="needs cuda_runtime_api.h of CUDA 13 (nvcc, or PyPI's nvidia-cuda-runtime)")
def test_signatures_are_those_of_the_header() -> None:
    path = header()
    assert path is not None and table.CHAPTERS
    rows.complete()
    mine = {
        name: row.signature[: len(row.signature) - LONGER.get(name, 0)] for name, row in rows.ROWS.items()
        if row.kind != rows.REFUSES and 13 in rows.exports().get(name, ())
    }  # fmt: skip
    known = prototypes(path, {*mine})
    wrong = {
        name: (mine[name], signatures) for name, signatures in known.items()
        if not any(agree(mine[name], c, WIDER.get(name, set())) for c in signatures)
    }  # fmt: skip
    assert len(known) > 220 and not wrong
