"""Sums of tcgen05 against others: words that a B200 gave (tests/data/README.md), and mmasim, a model checked on B200s."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.isa.types import TYPES
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.numerics.dot import dot
from mmulator.matrix.numerics.formats import container
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support import mmasim
from tests.support.matrix_model import model_matmul
from tests.support.numerics_cases import operands

WORDS = json.loads((Path(__file__).parents[1] / "data" / "tcgen05_words.json").read_text())["words"]


def numbers(text: str, kind: str) -> list[int]:
    digits = 2 * container(TYPES[kind]).itemsize
    return [int(text[i : i + digits], 16) for i in range(0, len(text), digits)]


def selected(metadata: str, pairs: bool) -> list[int]:
    """Positions along k that nibbles of two 2-bit indices select, lowest nibble first; of neighbours in pairs."""
    at = []
    for chunk, nibble in enumerate(int(digit, 16) for digit in reversed(metadata)):
        for index in (nibble & 3, nibble >> 2):
            at += [8 * chunk + 2 * index, 8 * chunk + 2 * index + 1] if pairs else [4 * chunk + index]
    return at


@pytest.mark.parametrize("word", WORDS, ids=[w["name"] for w in WORDS])
def test_a_word_of_a_b200(word: dict[str, Any]) -> None:
    d, a, b = word["types"].split(".")
    left, right = numbers(word["a"], a), numbers(word["b"], b)
    options = {name: word[name] for name in ("scale_vec", "stype") if name in word}
    key = DotKey(
        "tcgen05", a, b, d, d, len(left), sparse="metadata" in word, satfinite=word.get("saturate", False), kind=word["kind"],
        **options,
    )  # fmt: skip
    scales = {name: numbers(word[name], "u8") for name in ("scale_a", "scale_b") if name in word}
    c, expected = int(word["c"], 16), int(word["d"], 16)
    given: dict[str, Any] = {}
    at = list(range(len(left)))
    if key.sparse:
        at = selected(word["metadata"], pairs=a == "e2m1" and word["kind"] != "mxf8f6f4")
        given["indices"] = np.array([at])
    left = [left[k] for k in at]
    assert dot(key, "sm_100", left, [right[k] for k in at], c, **scales) == expected
    if scales:
        given |= {"scale_a": np.array([scales["scale_a"]], np.uint8), "scale_b": np.array([scales["scale_b"]], np.uint8).T}
    A, B = np.array([left], container(TYPES[a])), np.array([right], container(TYPES[b])).T.copy()
    C = np.array([[c]], container(TYPES[d]))
    assert model_matmul(key, "sm_100", A, B, C, **given)[0, 0] == expected
    assert twin_matmul(key, "sm_100", A, B, C, **given)[0, 0] == expected


# Names of mmasim's: for tcgen05 one for each kind and type of D and of the factors, pairs of types are drawn; for mma rows of
# the table that no GPU here was asked about. evidence/judges/bits.py compares all of them.
MMASIM = [
    ("TCGen05MMA", "Blackwell", "m64n8k8.kind::tf32.f32.tf32.tf32"),
    ("TCGen05MMA", "Blackwell", "m128n64k16.kind::f16.f32.f16.f16"),
    ("TCGen05MMA", "Blackwell", "m64n24k16.kind::f16.f32.bf16.bf16"),
    ("TCGen05MMA", "Blackwell", "m64n8k16.kind::f16.f16.f16.f16"),
    ("TCGen05MMA", "Blackwell", "m64n40k32.kind::f8f6f4.f32.e4m3.e3m2"),
    ("TCGen05MMA", "Blackwell", "m64n40k32.kind::f8f6f4.f32.e2m1.e5m2"),
    ("TCGen05MMA", "Blackwell", "m64n16k32.kind::f8f6f4.f16.e2m3.e5m2"),
    ("TCGen05MMABlockScale", "Blackwell", "m128n8k32.kind::mxf8f6f4.block32.f32.e5m2.e2m1.ue8m0"),
    ("TCGen05MMABlockScale", "Blackwell", "m128n16k64.kind::mxf4.block32.f32.e2m1.e2m1.ue8m0"),
    ("TCGen05MMABlockScale", "Blackwell", "m128n16k64.kind::mxf4nvf4.block32.f32.e2m1.e2m1.ue8m0"),
    ("TCGen05MMABlockScale", "Blackwell", "m128n16k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue8m0"),
    ("TCGen05MMABlockScale", "Blackwell", "m128n16k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3"),
    ("MMA", "Volta", "m8n8k4.f32.f16.f16.f32"),
    ("MMA", "Turing", "m8n8k4.f32.f16.f16.f32"),
    ("MMA", "Turing", "m8n8k4.f16.f16.f16.f16"),
    ("MMA", "Turing", "m16n8k8.f32.f16.f16.f32"),
    ("MMA", "Ada Lovelace", "m16n8k32.f32.e4m3.e5m2.f32"),
]


@pytest.mark.full
@pytest.mark.parametrize(("operation", "architecture", "name"), MMASIM)
def test_sums_are_those_of_mmasim(operation: str, architecture: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    sim = pytest.importorskip("mmasim.nv_ptx", reason="mmasim is not there: pip install mmasim==2.1.1 (needs g++)")
    rows, n = (int(x) for x in re.findall(r"[mn](\d+)", name.partition("k")[0]))
    key, device = mmasim.key(operation, name), mmasim.ARCHITECTURES[architecture]
    theirs = getattr(sim, operation)(architecture, name)
    for seed in range(2):
        (A, B, C), more = operands(key, min(rows, 16), n, key.k, seed)
        more = {x: y for x, y in more.items() if x.startswith("scale")}
        left, right = mmasim.factors(torch, key, A, B)
        scales = (mmasim.tensor(torch, x, key.stype or "") for x in more.values())
        D = theirs(left, right.T, mmasim.tensor(torch, C, key.dtype), *scales)
        np.testing.assert_array_equal(mmasim.raw(torch, D), twin_matmul(key, device, A, B, C, **more))
