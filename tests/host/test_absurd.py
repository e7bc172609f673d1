"""Whatever Python's functions are given, they raise nothing outside the family."""

import random
import warnings
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import mmulator as mm
from mmulator import inspect
from mmulator.errors import MmulatorError
from mmulator.matrix.layouts import sparse

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
TEXT = """.version 8.0
.target sm_90
.address_size 64
.global .f32 a[4];
.global .u8 b;
.visible .entry k(.param .u64 p, .param .f32 q, .param .align 8 .b8 s[16]) { ret; }
"""
HALF = np.zeros((16, 16), np.float16)
WORDS = np.zeros((32, 4), np.uint32)


class Refuses:
    def __array__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("not today")


class Confused:
    def __dlpack__(self, **options: Any) -> Any:
        raise KeyError("capsule")

    def __dlpack_device__(self) -> Any:
        return "gpu"


VALUES: list[Any] = [
    *(None, 0, 1, -1, 2**64, -(2**63), 10**400, -(10**5000), 1.5, float("nan"), float("inf"), 1j, True, "", "x", "sm_90", "a"),
    "9" * 5000,
    *(b"", b"abc", bytearray(16), memoryview(b"abc"), [], [1], [[1], [1, 2]], (), {}, {"a": 1}, set(), range(3), ..., len, int),
    *(object(), Refuses(), Confused(), mm, np.float16, np.dtype("f2"), np.float16(1), np.int64(3), mm.MatrixDescriptor()),
    *(np.zeros(s, np.float16) for s in ((), 0, (16, 8), (2, 16, 16), (0, 16), (16, 0), (16, 0, 8), (16, 32), (32, 8))),
    *(HALF, HALF[::-1], HALF.astype(">f2"), HALF.view(np.uint16), HALF.astype(ml_dtypes.bfloat16)),
    *(HALF.astype(t) for t in (object, complex, "M8[s]", np.int8, np.float32)),
    *(np.zeros((16, 16), [("x", "f4")]), np.ma.masked_array(HALF, mask=True), np.broadcast_to(np.float16(1), (16, 16))),
    *(np.array(["a"]), WORDS, WORDS[:, :2], WORDS.view(np.int32) - 1, WORDS[:, 0], np.zeros(32, np.int64)),
    np.zeros(512, np.uint8),
]
NAMES = (
    *("mma m16n8k16 f16", "mma.sp m16n8k32 f16", "wgmma m64n8k16 f16", "mma m16n8k32 s8", "ldmatrix x4", "stmatrix x2"),
    *("movmatrix trans", "wmma m16n16k16 f16", "wmma load a m16n16k16 f16", "wmma store m16n16k16 f16", "mma nvfp4"),
    *("mma m16n8k8 tf32", "mma m8n8k4 f64", "mma m8n8k4 f16", "wgmma commit", "mma m16n8k256 b1 and"),
)
INSTRUCTIONS = [mm.Instruction.parse(name) for name in NAMES]
SPARSE = INSTRUCTIONS[1]
KEPT = sparse.compress(np.zeros((16, 32), np.float16), SPARSE)
MODULE = mm.Module.load(TEXT)


class Caller:
    """Calls with arguments of which some are right and the others anything."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def any(self) -> Any:
        return self.random.choice(VALUES)

    def maybe(self, right: Any, chance: float = 0.5) -> Any:
        return right if self.random.random() < chance else self.any()

    def call(self) -> Call:
        i = self.random.choice(INSTRUCTIONS)
        return self.random.choice([self.execute, self.multiply, self.layout, self.descriptor, self.sparse, self.other])(i)

    def execute(self, i: mm.Instruction) -> Call:
        operands = {name: self.maybe(WORDS, 0.4) for name in i.operands if self.random.random() < 0.9}
        if self.random.random() < 0.2:
            operands["d"] = self.any()
        return i.execute, (), {**operands, "device": self.maybe("sm_90", 0.8)}

    def multiply(self, i: mm.Instruction) -> Call:
        f = i.form
        a, b = np.zeros((max(f.m, 1), max(f.k, 1)), np.float16), np.zeros((max(f.k, 1), max(f.n, 1)), np.float16)
        options = {"device": self.maybe("sm_90", 0.8), "imm_scale_a": self.maybe(1, 0.8), "scale_b": self.maybe(None, 0.8)}
        if self.random.random() < 0.5:
            return i.compute, (self.maybe(a), self.maybe(b), self.any()), options
        return mm.matmul, (self.maybe(a), self.maybe(b), self.maybe(None)), {**options, "instruction": self.maybe(i, 0.7)}

    def layout(self, i: mm.Instruction) -> Call:
        if self.random.random() < 0.3:
            return i.layout, (self.any(),), {}
        found = INSTRUCTIONS[0].layout(self.random.choice("abcd"))
        several = (found.locate, found.element)
        if self.random.random() < 0.5:
            return self.random.choice(several), (self.any(), self.maybe(0), self.maybe(0)), {}
        return self.random.choice((found.to_registers, found.to_matrix)), (self.any(),), {}

    def descriptor(self, i: mm.Instruction) -> Call:
        if self.random.random() < 0.5:
            return mm.MatrixDescriptor, tuple(self.maybe(16) for _ in range(self.random.randrange(6))), {}
        return self.random.choice((mm.MatrixDescriptor.decode, mm.MatrixDescriptor.unused_bits)), (self.any(),), {}

    def sparse(self, i: mm.Instruction) -> Call:
        form, some = SPARSE.form, self.any()
        calls: list[Call] = [
            *((f, (some, self.maybe(SPARSE)), {}) for f in (sparse.compress, sparse.prune, sparse.too_dense)),
            *((f, (some, form), {}) for f in (sparse.check, sparse.indices, sparse.undefined, sparse.mixed)),
            *((f, (some, form, self.maybe(0)), {}) for f in (sparse.to_registers, sparse.from_registers)),
            (sparse.Compressed, (some, self.any(), self.maybe(form, 0.8)), {}),
            (sparse.from_torch, (some, self.any()), {"instruction": SPARSE, "shape": self.any(), "backend": self.maybe(None)}),
            (sparse.to_torch, (self.maybe(KEPT), self.any()), {}),
            (KEPT.registers, (some,), {}),
            (KEPT.padded, (some, self.any()), {}),
            (sparse.places, (form, some), {}),
            (sparse.expand, (some,), {}),
        ]
        return self.random.choice(calls)

    def other(self, i: mm.Instruction) -> Call:
        questions = (inspect.layout, inspect.explain, inspect.find_forms, inspect.describe_descriptor, inspect.metadata_word)
        calls: list[Call] = [
            (mm.Instruction.parse, (self.any(), self.maybe(None), self.maybe(None)), {}),
            (mm.struct, tuple(self.any() for _ in range(self.random.randrange(4))), {"pointers": self.maybe(None, 0.7)}),
            (MODULE.variables.__setitem__, (self.maybe("a"), self.any()), {}),
            (MODULE.__getitem__, (self.any(),), {}),
            (MODULE["k"].launch, (1, 1, [self.maybe(None), self.maybe(1.0), self.maybe(bytes(16))]), {}),
            (self.random.choice(questions), (self.any(), *((self.any(),) * self.random.randrange(2))), {}),
        ]
        return self.random.choice(calls)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_outside_the_family_is_raised(seed: int) -> None:
    caller = Caller(seed)
    outcomes = {"right": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(600):
            function, args, options = caller.call()
            try:
                function(*args, **options)
                outcomes["right"] += 1
            except MmulatorError:
                outcomes["refused"] += 1
            except TypeError as error:
                if "positional argument" not in str(error):
                    raise AssertionError(f"call {n}: {function}") from error
            except Exception as error:
                raise AssertionError(f"call {n}: {function}") from error
    assert min(outcomes.values()) > 20
