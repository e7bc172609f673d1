"""Checks of a tensor map, of an instruction that copies with it, and whether a wgmma finds a box where a copy left it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mmulator.base.errors import InvalidInstructionError, OperandError
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.matrix.inspect.descriptors.checks import SM_SHARED, Diagnostic
from mmulator.matrix.inspect.descriptors.tile import Placed
from mmulator.matrix.inspect.tensormaps.box import TensorBox
from mmulator.matrix.layouts.tensormap import fields as f
from mmulator.matrix.layouts.tensormap.encoded import Encoded
from mmulator.matrix.layouts.tensormap.places import GRANULE
from mmulator.matrix.layouts.tensormap.rules import begins_wrong, cannot_be_written, refusals
from mmulator.matrix.layouts.tensormap.rules import rule_of as refusal_rule

_EXAMPLE = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
NAMES = ("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "cp.async.bulk.prefetch.tensor")
_GUARD = re.compile(r"^\s*@!?\S+\s+")  # a predicate
# [dstMem], [tensorMap, {c0, c1}], ...
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Copy:
    """A tensor copy.

    form: of the instruction.
    coordinates, offsets: as written, dimension 0 first; None for one that is no number; empty where only the name is given.
    """

    form: Form
    coordinates: tuple[int | None, ...] = ()
    offsets: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        return int(self.form["dim"][0])

    @property
    def mode(self) -> str:
        """PTX's name of the mode: `tile`, `tile::gather4`, `im2col`, ... ."""
        return self.form["mode"] or "tile"

    @property
    def im2col(self) -> bool:
        return self.mode.startswith("im2col")

    @property
    def to_global(self) -> bool:
        return self.form["dst"] == "global"

    @property
    def operation(self) -> str:
        """The operation of a reduction, `add`, ...; empty for other copies."""
        return self.form["op"]

    def known(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """(coordinates, offsets) where all of them are numbers, else None."""
        if not self.coordinates or None in self.coordinates or None in self.offsets:
            return None
        return tuple(c for c in self.coordinates if c is not None), tuple(c for c in self.offsets if c is not None)


def parse_copy(text: str) -> Copy:
    """A tensor copy from its text. Raises InvalidInstructionError for other texts, OperandError for a wrong number of
    coordinates.
    """
    name, _, operands = _GUARD.sub("", text).strip().rstrip(";").partition(" ")
    opcode, *modifiers = name.split(".")
    found = match(opcode, tuple(modifiers))
    if not isinstance(found, Form):
        raise InvalidInstructionError(found.message, rule=found.rule, hint=found.hint)
    if found.name not in NAMES:
        raise InvalidInstructionError(f"`{name}` copies no tensor", hint=f"such as {_EXAMPLE}")
    lists = [tuple(_number(part) for part in braces.split(",")) for braces in _BRACES.findall(operands)]
    copy = Copy(found, *lists[:2])
    wanted = 5 if copy.mode.endswith("4") else copy.rank
    if copy.coordinates and len(copy.coordinates) != wanted:
        raise OperandError(
            f"the instruction has {len(copy.coordinates)} coordinates: .{copy.rank}d.{copy.mode} takes {wanted}",
            rule=f"{found.section}",
        )  # fmt: skip
    return copy


def _number(text: str) -> int | None:
    try:
        return int(text.strip(), 0)
    except ValueError:
        return None


COPY = "Data Movement and Conversion Instructions: Tensor copy (PTX ISA 9.1)"
SWIZZLES = "Swizzling Modes (PTX ISA 9.1)"
_ALIGNED = 128  # bytes: the destination of a tensor copy in shared memory
_ORDER = ("error", "warning", "note")


def worst_first(found: Iterator[Diagnostic] | tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.level)))


def check_bytes(data: bytes, m: Encoded) -> tuple[Diagnostic, ...]:
    """Diagnostics of bits that no field of such a map has, and of fields that contradict each other."""
    return worst_first(_bytes(data, m))


def _bytes(data: bytes, m: Encoded) -> Iterator[Diagnostic]:
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, f.BYTES, 4)]
    known = [int.from_bytes(m.encode()[at : at + 4], "little") for at in range(0, f.BYTES, 4)]
    odd = [32 * n + bit for n, (word, own) in enumerate(zip(words, known)) for bit in range(32) if (word ^ own) >> bit & 1]
    if odd:
        first = ", ".join(f"{bit // 32 * 4:#04x} bit {bit % 32}" for bit in odd[:6])
        more = f" and {len(odd) - 6} more" if len(odd) > 6 else ""
        yield Diagnostic("warning", f"bits are set that belong to no field of such a map: {first}{more}",
                         "Tensor-map (PTX ISA 9.1)",
                         "these bytes were not made by CUDA's driver for this chip, or changed since")  # fmt: skip
    for what, said, follows in (
        ("bytes of a box", m.box_bytes, m.described_bytes), ("alignment", m.alignment, m.mode.alignment),
    ):  # fmt: skip
        if said is not None and said != follows % (1 << 32):
            yield Diagnostic("warning", f"the map says {said} as {what}, and its other fields make {follows}",
                             "Tensor-map (PTX ISA 9.1)", "it was changed after it was encoded")  # fmt: skip


def check_map(m: Encoded) -> tuple[Diagnostic, ...]:
    """Diagnostics of what the driver refuses, and of what is legal and surprises."""
    return worst_first(_map(m))


def _map(m: Encoded) -> Iterator[Diagnostic]:
    for refused in refusals(m):
        yield Diagnostic("error", f"{refused.parameter} {refused.message}", refused.rule, refused.hint or "")
    if m.interleave == "32B" and m.swizzle != "32B":
        yield Diagnostic("warning",
                         f"interleave 32B with swizzle {m.swizzle}: the driver's manual wants 32B, and its code does not",
                         refusal_rule(m), 'say swizzle="32B"')  # fmt: skip
    if m.slice and m.box and m.rank > 2 and m.box[-2] != 1:
        yield Diagnostic("warning", f"the box has {m.box[-2]} slices of channels: a copy moves one", "measured on an NVIDIA H200",
                         "make it 1, and copy slice by slice")  # fmt: skip
    row = m.type.bytes_of(m.sizes[0])
    if not m.slice and row % GRANULE:
        yield Diagnostic(
            "note", f"a row of the tensor has {row} bytes: stores write whole {GRANULE} bytes, up to {-row % GRANULE} behind it",
            "measured on an NVIDIA H200", "keep what lies there in the padding of a row",
        )  # fmt: skip
    reach = row
    for n, stride in enumerate(m.strides if not m.slice else ()):
        if stride < reach and m.sizes[n + 1] > 1:
            yield Diagnostic("note", f"elements overlap: dimension {n + 1} goes {stride} bytes, and one below reaches {reach}",
                             "Tensor Dimension, size and format (PTX ISA 9.1)")  # fmt: skip
        reach = max(reach, stride * m.sizes[n + 1])


def check_copy(
    m: Encoded, copy: Copy, destination: int | None = None, expect: int | None = None, shared: int | None = None
) -> tuple[Diagnostic, ...]:
    """Diagnostics of an instruction that copies with a map.

    m: the map.
    copy: the instruction.
    destination: address in shared memory; None where it is not known.
    expect: bytes that the mbarrier was told to expect; None where not known.
    shared: bytes of shared memory; None: what an SM has.
    """
    return worst_first((*check_map(m), *_copy(m, copy), *_shared(m, copy, destination, expect, shared)))


def _copy(m: Encoded, copy: Copy) -> Iterator[Diagnostic]:
    if copy.rank != m.rank:
        yield Diagnostic("error", f"the instruction is .{copy.rank}d, and the map has {m.rank} dimensions", COPY,
                         f"copy with .{m.rank}d, or make a map of {copy.rank} dimensions")  # fmt: skip
    if copy.im2col != m.im2col:
        has, takes = ("im2col" if m.im2col else "tiled"), ("im2col" if copy.im2col else "tiled")
        yield Diagnostic("error", f"the instruction copies .{copy.mode}, which takes {takes} maps; this one is {has}", COPY,
                         f"copy with {'.im2col' if m.im2col else '.tile'}, or encode the map as {takes}")  # fmt: skip
    known = copy.known()
    if known is not None and len(known[0]) == m.rank and copy.im2col == m.im2col:
        for text, rule in begins_wrong(m, known[0], copy.to_global):
            yield Diagnostic("error", text, rule)
    if copy.mode.endswith("4") and (m.rank == 2 and m.box[1:] != (1,)):
        yield Diagnostic("error", f"box[0] is {m.box[1]}: .{copy.mode} copies four boxes of one row", "Tiled Mode (PTX ISA 9.1)",
                         "encode the map with a box of one row")  # fmt: skip
    if m.slice and (copy.mode.endswith("4") or "::w" in copy.mode):
        rule = "Interleave layout (PTX ISA 9.1)"
        yield Diagnostic("error", f"the map has interleave {m.interleave}: .{copy.mode} takes none", rule)
    if copy.mode.startswith("im2col::w") and m.swizzle in ("none", "128B_atom_32B_flip_8B"):
        rule = "im2col::w and im2col::w::128 modes (PTX ISA 9.1)"
        yield Diagnostic("error", f"the map has swizzle {m.swizzle}: .{copy.mode} takes another", rule,
                         "encode it with a swizzle")  # fmt: skip
    if copy.to_global:
        yield from _store(m, copy)
    needs = _newer(m)
    if needs:
        yield Diagnostic("note", f"{needs} takes sm_100 or later", COPY)


def _newer(m: Encoded) -> str:
    return f"type {m.type}" if m.type.elements > 1 else f"swizzle {m.swizzle}" if m.mode.driver > 3 else ""


# Operations of cp.reduce.async.bulk.tensor, and the types that they take.
_INTEGERS = "u32 s32 u64 s64"
_REDUCE = {
    "add": "u32 s32 u64 f32 f32.ftz tf32 tf32.ftz f64 f16 bf16", "min": f"{_INTEGERS} f16 bf16", "max": f"{_INTEGERS} f16 bf16",
    "inc": "u32", "dec": "u32", **dict.fromkeys(("and", "or", "xor"), "u32 s32 u64"),
}  # fmt: skip


def _store(m: Encoded, copy: Copy) -> Iterator[Diagnostic]:
    if copy.known() is None:
        for text, rule in cannot_be_written(m):
            yield Diagnostic("error", text, rule)
    if copy.operation and m.type.name not in _REDUCE[copy.operation].split():
        yield Diagnostic("error", f".{copy.operation} knows no elements of type {m.type}",
                         "Data Movement and Conversion Instructions: cp.reduce.async.bulk.tensor (PTX ISA 9.1)",
                         f"types of .{copy.operation}: {_REDUCE[copy.operation]}")  # fmt: skip


def _shared(m: Encoded, copy: Copy, destination: int | None, expect: int | None, shared: int | None) -> Iterator[Diagnostic]:
    side = "source" if copy.to_global else "destination"
    size, room = m.transaction_bytes, m.span
    if copy.mode.endswith("4"):
        size, room = 4 * size, 4 * room
    if destination is not None and destination % _ALIGNED:
        yield Diagnostic("error", f"the {side} is {destination:#x}: it must be a multiple of {_ALIGNED}", COPY,
                         f"declare the shared memory with .align {max(m.mode.alignment, _ALIGNED)}")  # fmt: skip
    elif destination is not None and destination % m.mode.alignment:
        yield Diagnostic(
            "warning", f"the {side} is {destination:#x}: the pattern of swizzle {m.swizzle} starts at multiples of "
            f"{m.mode.alignment}, so the box begins {destination % m.mode.alignment} bytes inside it",
            SWIZZLES, f"align it to {m.mode.alignment}, or say so in the base offset of the matrix descriptor",
        )  # fmt: skip
    window = SM_SHARED if shared is None else shared
    if (destination or 0) + room > window:
        yield Diagnostic("error", f"a box takes {room} bytes at {destination or 0:#x}, and shared memory has {window}", COPY,
                         "copy smaller boxes")  # fmt: skip
    if expect is not None and not copy.to_global and expect != size:
        more = expect > size
        yield Diagnostic(
            "warning" if more else "error",
            f"the mbarrier expects {expect} bytes, and a copy brings {size}: "
            + (f"the wait ends when others bring {expect - size}" if more else "a phase may end before all of them are there"),
            "mbarrier.expect_tx (PTX ISA 9.1)", f"expect {size} for this copy; elements that are filled count, too",
        )  # fmt: skip


def check_reader(box: TensorBox, read: Placed) -> tuple[Diagnostic, ...]:
    """Diagnostics of a descriptor that reads a box: each element of its matrix must be the box's at the same distance from the
    first,
    row by row.
    """
    return tuple(_reader(box, read))


def _reader(box: TensorBox, read: Placed) -> Iterator[Diagnostic]:
    tile, kind = read.tile, box.map.fields.type
    swizzle, mode = box.map.swizzle, read.descriptor.mode.name
    if kind.elements > 1 or 8 * kind.memory != tile.element.bits:
        yield Diagnostic("error", f"the box has elements of {kind}, and wgmma reads .{tile.element}", SWIZZLES)
        return
    if swizzle != mode:
        yield Diagnostic("error", f"the map swizzles {swizzle}, and the descriptor {mode}", SWIZZLES,
                         "make both the same")  # fmt: skip
    lies = box.placed.shared.reshape(-1, box.placed.shared.shape[-1])
    rows, columns = lies.shape
    flat = lies.reshape(-1)
    order = np.argsort(flat)
    wanted = read.addresses.T if tile.mn_major else read.addresses
    near = np.minimum(np.searchsorted(flat[order], wanted.reshape(-1)), len(order) - 1)
    found = np.where(flat[order][near] == wanted.reshape(-1), order[near], -1).reshape(wanted.shape)
    first = int(found[0, 0])
    if first < 0:
        yield Diagnostic("error", f"wgmma reads its first element at {int(wanted[0, 0]):#x}, where this box has none", SWIZZLES,
                         "start address = (address of the box) + (bytes of what is skipped)")  # fmt: skip
        return
    row, column = np.ogrid[: wanted.shape[0], : wanted.shape[1]]
    row, column = row + first // columns, column + first % columns
    meant = np.where((row < rows) & (column < columns), row * columns + column, -2)
    wrong = np.argwhere(found != meant)
    if not len(wrong):
        return
    i, j = (int(n) for n in wrong[0])
    at, name = found[i, j], _names(tile.mn_major, tile.letter)
    holds = "nothing of this box" if at < 0 else f"row {int(at) // columns}, column {int(at) % columns} of the box"
    should = "beyond the box" if meant[i, j] < 0 else f"row {meant[i, j] // columns}, column {meant[i, j] % columns}"
    yield Diagnostic(
        "error", f"of {name[0]} {i}, {name[1]} {j} wgmma reads {holds} at {int(wanted[i, j]):#x}; it should be {should}: "
        f"{len(wrong)} of {found.size} elements are others", "Strides (PTX ISA 9.1)",
        "`mmulator descriptor encode` makes the descriptor of a packed layout",
    )  # fmt: skip


def _names(mn_major: bool, letter: str) -> tuple[str, str]:
    return ("k", letter) if mn_major else (letter, "k")
