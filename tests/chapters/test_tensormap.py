"""Tensor maps that a kernel makes: every field of tensormap.replace as an H200 writes it, and publishing."""

from functools import cache

import numpy as np
import pytest

from mmulator.errors import InvalidInstructionError
from mmulator.host.module import Kernel, Module
from tests.data import bulk_vectors
from tests.data.bulk_vectors import Replaced
from tests.support.ptx_text import kernel

PARAMS = ".param .u64 out, .param .u64 value, .param .u32 word"
IMMEDIATE = ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
# In shared memory the map is brought there first, and back.
FRAME = """
  .shared .align 128 .b8 map[128];
  ld.param.u64 %rd1, [value]; ld.param.u32 %r1, [word]; mov.u32 %r2, map; mov.u32 %r3, 0;
I: cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd0, %rd2; ld.global.u64 %rd4, [%rd3]; add.u32 %r4, %r2, %r3; st.shared.u64 [%r4], %rd4;
  add.u32 %r3, %r3, 8; setp.lt.u32 %p1, %r3, 128; @%p1 bra I;
  {statement}
  @{back} bra END; mov.u32 %r3, 0;
O: cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd0, %rd2; add.u32 %r4, %r2, %r3; ld.shared.u64 %rd4, [%r4]; st.global.u64 [%rd3], %rd4;
  add.u32 %r3, %r3, 8; setp.lt.u32 %p1, %r3, 128; @%p1 bra O;
END:
"""


@cache
def replacing(field: str, number: int | None, space: str) -> Kernel:
    wide = field in ("global_address", "global_stride")
    value = str(number) if field in IMMEDIATE else "%rd1" if wide else "%r1"
    ordinal = f"{number}, " if number is not None and field not in IMMEDIATE else ""
    at = {"shared": ".shared::cta", "global": ".global", "generic": ""}[space]
    place = "%r2" if space == "shared" else "%rd0"
    statement = f"tensormap.replace.tile.{field}{at}.b1024.b{64 if wide else 32} [{place}], {ordinal}{value};"
    back = "%p2" if space == "shared" else "!%p2"
    text = kernel("  setp.ne.u32 %p2, 0, 0;" + FRAME.format(statement=statement, back=back), PARAMS)
    return Module.load(text.replace(".version 8.0", ".version 8.6"))["k"]


def after(r: Replaced, space: str) -> np.ndarray:
    words = r.before.copy()
    replacing(r.field, r.number, space).launch(1, 1, [words, r.value, r.value & 0xFFFFFFFF])
    return words


FIELDS = sorted({(r.field, r.space) for r in bulk_vectors.replaced()})


@pytest.mark.parametrize(("field", "space"), FIELDS, ids=[" ".join(f) for f in FIELDS])
def test_fields_have_the_bits_of_the_hardware(field: str, space: str) -> None:
    """Of every value, also such as the field cannot hold; nothing else of the map changes."""
    for r in bulk_vectors.replaced():
        if (r.field, r.space) == (field, space):
            assert after(r, space).tolist() == r.after.tolist(), f"{field} {r.number} = {r.value:#x} in {r.base}"


@pytest.mark.parametrize("field", sorted({f for f, _ in FIELDS}))
def test_a_generic_address_will_do(field: str) -> None:
    r = next(r for r in bulk_vectors.replaced() if r.field == field and r.base == "ones")
    assert after(r, "generic").tolist() == r.after.tolist()


@pytest.mark.parametrize(("field", "values"), [("swizzle_atomicity", range(4)), ("elemtype", (13, 14, 15))])
def test_fields_of_sm_100(field: str, values: range) -> None:
    """No map of theirs was seen on a chip: bits as in ptxas's code. (layouts/tensormap/fields.py)"""
    for value in values:
        statement = f"tensormap.replace.tile.{field}.global.b1024.b32 [%rd0], {value};"
        text = kernel(statement).replace(".version 8.0", ".version 8.8").replace("sm_90a", "sm_100a")
        words = np.zeros(32, np.uint32)
        Module.load(text)["k"].launch(1, 1, [words])
        wanted = value << 19 if field == "swizzle_atomicity" else (value - 2) << 7
        assert words[2] == wanted and not np.delete(words, 2).any()


@pytest.mark.parametrize("statement", ["box_dim.global.b1024.b32 [%rd0], 5, 1", "elemtype.global.b1024.b32 [%rd0], 16"])
def test_an_ordinal_or_a_number_that_is_none_is_an_error_of_the_module(statement: str) -> None:
    with pytest.raises(InvalidInstructionError, match=r"tensormap\.replace"):
        Module.load(kernel(f"tensormap.replace.tile.{statement};").replace(".version 8.0", ".version 8.6"))


PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1+{}], [%r2+{}], 128;"


def publish(to: int, at: int, lanes: int = 32) -> np.ndarray:
    words, out = np.arange(1, 33, dtype=np.uint32), np.zeros(96, np.uint32)
    body = FRAME.format(statement=PUBLISH.format(to, at), back="!%p2").replace("map[128]", "map[256]")
    text = kernel("  setp.ne.u32 %p2, 0, 0;" + body, PARAMS.replace(".u32 word", ".u64 word").replace("word", "unused"))
    text = text.replace("ld.param.u32 %r1, [word];", "").replace(".version 8.0", ".version 8.6")
    Module.load(text)["k"].launch(1, lanes, [words, out, 0])
    return out


def test_a_published_map_is_a_copy() -> None:
    out = publish(128, 0)
    assert out[32:64].tolist() == list(range(1, 33)) and not out[:32].any() and not out[64:].any()
