"""Asynchronous operations in flight: cp.async, wgmma, bulk and tensor copies, tcgen05; whose they are, and what they touch."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from mmulator.base.tables import text_table
from mmulator.isa.effects import MemoryEffect
from mmulator.matrix.layouts.descriptors import MatrixDescriptor
from mmulator.observation.debug.machine import line_text
from mmulator.observation.debug.views.scene import Scene, lanes_in, named_shared, of_block
from mmulator.observation.record.trail import functions_of
from mmulator.ptx.program.addresses import RANK_SHIFT, SHARED_BASE
from mmulator.ptx.tree import Instruction
from mmulator.runtime.launch.arena import bytes_at
from mmulator.runtime.launch.resident import ResidentCta
from mmulator.runtime.native.asynchrony.maps import Box
from mmulator.runtime.native.asynchrony.transfers import BulkCopy, TensorWork
from mmulator.runtime.native.state import (
    ASYNC_GROUPS,
    COPIES,
    FULL,
    KINDS,
    TRANSFERS,
    WGMMA,
    AsyncGroup,
    Completes,
    OperationKind,
    Transfer,
    TransferState,
    Warp,
    WgmmaTable,
)
from mmulator.sanitizer.diagnostics.mbarriers import known
from mmulator.sanitizer.diagnostics.whereabouts import lanes_text

_TRANSFER, _GROUP = np.dtype(Transfer.numpy_dtype()), np.dtype(AsyncGroup.numpy_dtype())
_TABLE = WgmmaTable.numpy_dtype()
_NAMES = {COPIES.name: "cp.async", WGMMA.name: "wgmma"}


@dataclass(frozen=True)
class InFlight:
    """An asynchronous operation that is not complete.

    cta, warp, lanes: who issued it: rank of the CTA in the cluster, number of the warp, mask of lanes.
    kind: `cp.async`, `wgmma`, `bulk`, `tcgen05`.
    number: of the operation among those of its kind.
    instruction: that issued it.
    group: number of its group, from 0; None if it is not committed, or belongs to none.
    waits: what is told of its end, in words.
    touches: what it reads and writes, in words.
    done: share that is carried out, 0 to 1.
    pipe: whether it is one of tensor memory's, which are carried out in order.
    """

    cta: int
    warp: int
    lanes: int
    kind: str
    number: int
    instruction: Instruction
    group: int | None
    waits: str
    touches: str
    done: float = 0.0
    pipe: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "cta": self.cta, "warp": self.warp, "lanes": self.lanes, "kind": self.kind, "number": self.number,
            "instruction": self.instruction.mnemonic, "at": line_text(self.instruction), "group": self.group,
            "waits": self.waits, "touches": self.touches, "done": self.done,
        }  # fmt: skip


@dataclass(frozen=True)
class Flights:
    """All operations in flight of a cluster, and how many groups each warp has committed.

    flights: the operations.
    committed: (CTA, warp, kind) -> groups that were committed so far.
    blocks: names of the cluster's CTAs.
    """

    flights: tuple[InFlight, ...]
    committed: dict[tuple[int, int, str], int]
    blocks: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        groups = [{"cta": c, "warp": w, "kind": k, "committed": n} for (c, w, k), n in self.committed.items()]
        return {"flights": [f.as_dict() for f in self.flights], "groups": groups}

    def text(self, width: int = 80) -> str:
        """A line or two for each operation."""
        if not self.flights:
            return "nothing is in flight"
        lines = [f"{len(self.flights)} operation{'s are' if len(self.flights) > 1 else ' is'} in flight"]
        for f in self.flights:
            who = f"warp {f.warp}" + f" {lanes_text(f.lanes)}" * (f.lanes != FULL)
            place = f"{of_block(self.blocks, f.cta)}, {line_text(f.instruction)}" + (f", {f.done:.0%} done" if f.done else "")
            said = f"{f.instruction.form.name} of {who}{place}"
            lines += wrap(said, width, initial_indent="  ", subsequent_indent="      ")
            for said in (f.touches, f.waits):
                lines += wrap(said, width, initial_indent="    ", subsequent_indent="      ") if said else []
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def table(self) -> list[str]:
        """Lines of a table: groups that each warp has committed."""
        return text_table(("block", "warp", "kind", "groups committed"), [(*key, n) for key, n in self.committed.items()])


def flights(scene: Scene) -> Flights:
    """All asynchronous operations in flight in the cluster."""
    found: list[InFlight] = []
    committed = {}
    for kind in KINDS:
        if kind in scene.kernel.queues:
            for cta in scene.resident.each():
                for warp, w in enumerate(cta.warps):
                    found += _queued(scene, cta, kind, warp)
                    count = int(w["queues"][kind.queue]["committed"])
                    if count:
                        committed[cta.rank, warp, _NAMES[kind.name]] = count
    return Flights((*found, *transfers(scene)), committed, scene.blocks)


# queues of a warp ------------------------------------------------------------------------------------------------------------
def _queued(scene: Scene, cta: ResidentCta, kind: OperationKind, warp: int) -> Iterator[InFlight]:
    queue = cta.warps[warp]["queues"][kind.queue]
    done, issued = int(queue["done"]), int(queue["issued"])
    if done == issued:
        return
    ends, numbers = _groups(scene, cta, kind, warp)
    for number in range(done, issued):
        entry = cta.operation(kind, warp, number)
        head = entry["operation"]
        site = int(entry["site"]) if kind is WGMMA else int(head["site"])
        ins = scene.kernel.sites[site]
        at = bisect_right(ends, number)
        group = numbers[at] if at < len(ends) else None
        waits, lanes = _told(scene, head, kind, group), int(entry["mask"]) if kind is COPIES else FULL
        touches = _copy_text(scene, cta, entry) if kind is COPIES else _wgmma_text(scene, entry)
        yield InFlight(cta.rank, warp, lanes or 1 << int(head["lane"]), _NAMES[kind.name], number, ins, group, waits, touches)


def _groups(scene: Scene, cta: ResidentCta, kind: OperationKind, warp: int) -> tuple[list[int], list[int]]:
    """(number of operations up to the end, number) of the groups of a warp that are not empty, in order."""
    every = scene.resident.arena.view(f"{kind.name} groups", _GROUP).reshape(-1, ASYNC_GROUPS)
    own, filled = every[cta.rank * len(cta.warps) + warp], int(cta.warps[warp]["queues"][kind.queue]["filled"])
    known = [own[n % ASYNC_GROUPS] for n in range(max(0, filled - ASYNC_GROUPS), filled)]
    return [int(g["end"]) for g in known], [int(g["number"]) for g in known]


def _told(scene: Scene, head: Any, kind: OperationKind, group: int | None) -> str:
    completes = Completes(int(head["completes"]))
    if completes is not Completes.GROUP:
        return f"completes {known(scene.resident, int(head['barrier'])).name(scene.cta)}"
    if group is None:
        return f"not committed: {_NAMES[kind.name]}.commit_group is yet to come"
    return f"in group {group}, until {_NAMES[kind.name]}.wait_group covers it"


def _copy_text(scene: Scene, cta: ResidentCta, entry: Any) -> str:
    lanes = lanes_in(int(entry["mask"]))
    if not lanes:
        return ""
    bytes = int(entry["bytes"])
    if int(entry["rows"]):
        source, target = (int(entry[f"row_{x}"][0]) for x in ("source", "target"))
        return f"copies rows of {bytes} bytes a lane from {host_text(scene, source)} on to {host_text(scene, target)} on"
    sources, targets = ([int(entry[x][n]) for n in lanes] for x in ("source", "target"))
    parts = (f"{host_text(scene, min(a))} to {host_text(scene, max(a) + bytes - 1)}" for a in (sources, targets))
    return f"copies {bytes} bytes a lane, from {{}} into {{}}".format(*parts)


def _wgmma_text(scene: Scene, entry: Any) -> str:
    table = bytes_at(int(entry["table"]), _TABLE.itemsize).view(_TABLE)[0]
    said = [] if table["a_in_registers"] else [("A", int(entry["a_desc"]))]
    said.append(("B", int(entry["b_desc"])))
    places = []
    for name, word in said:
        start = MatrixDescriptor.decode(word).start_address
        places.append(f"{name} at {named_shared(scene, start)}")
    names = {slot: name for name, slot in scene.frame(_function_of(scene, entry)).slots.items()}
    slots = table["d_slots"][: int(table["d_words"])].tolist()
    first, last = (names.get(slots[n], "?") for n in (0, -1))
    adds = "adds to" if int(entry["scale_d"]) else "writes"
    return f"reads {', '.join(places)}; {adds} {first} to {last}"


def _function_of(scene: Scene, entry: Any) -> str:
    return scene.kernel.once(functions_of)[scene.kernel.executed[int(entry["site"])]]


def host_text(scene: Scene, host: int) -> str:
    """A place in memory of the host in words: `smem + 16 (shared 0x410)`, `byte 64 of argument 0 (A)`."""
    for cta in scene.resident.each():
        offset = host - scene.resident.shared_at(cta.rank)
        if 0 <= offset < scene.grid.shared:
            block = f" of {cta}" if cta.rank != scene.place.cta else ""
            return named_shared(scene, SHARED_BASE + offset) + block
    for region in scene.grid.memory:
        if region.host <= host < region.host + region.size:
            return f"byte {host - region.host} of {region.label}"
    return "other memory"


# the cluster's transfers --------------------------------------------------------------------------------------------------------
def transfers(scene: Scene) -> list[InFlight]:
    """Bulk operations and those of tensor memory that are in flight in the cluster, in the order of their issue."""
    if not scene.kernel.movers:
        return []
    every = scene.resident.arena.view("transfers", _TRANSFER)[:TRANSFERS]
    rows = sorted(every[every["state"] == TransferState.UNDER_WAY], key=lambda t: int(t["number"]))
    return [_transfer(scene, t) for t in rows]


def _transfer(scene: Scene, t: Any) -> InFlight:
    number = (int(t["warp"]) - scene.resident.arena.at("warps")) // Warp.size
    warps = scene.grid.shape.warps
    ins = scene.kernel.sites[int(t["site"])]
    completes, pipe = Completes(int(t["completes"])), bool(t["pipe"])
    waits = ""
    if completes is Completes.BYTES:
        ranks = [r for r in range(scene.resident.size) if int(t["barriers"]) >> r & 1]
        at = [known(scene.resident, scene.resident.shared_at(r) + int(t["offset"])) for r in ranks]
        waits = "completes bytes at " + ", ".join(k.name(scene.cta) for k in at)
    elif completes is Completes.GROUP:
        waits = f"in bulk group {int(t['group'])} of its lane, until cp.async.bulk.wait_group covers it"
    elif pipe:
        waits = "in the pipe of tensor memory, until a tcgen05.commit behind it is carried out"
    units = max(1, int(t["units"]))
    kind = "tcgen05" if pipe else "bulk"
    touches = _tensor_text(t, ins) if pipe else _bulk_text(scene, t, ins)
    return InFlight(number // warps, number % warps, 1 << int(t["lane"]), kind, int(t["number"]), ins, None, waits, touches,
                  int(t["done"]) / units, pipe)  # fmt: skip


def _payload(t: Any, struct: Any) -> Any:
    dtype = np.dtype(struct.numpy_dtype())
    return np.frombuffer(np.ascontiguousarray(t["payload"]).tobytes(), dtype, 1)[0]


def _bulk_text(scene: Scene, t: Any, ins: Instruction) -> str:
    if "tensor" in ins.modifiers:
        box = _payload(t, Box)
        where = named_shared(scene, SHARED_BASE + int(box["place"]))
        size = f"{int(box['rows'])} rows of {int(box['row'])} bytes"
        return f"a box of {size} of the tensor at {_place(scene, int(box['address']))}, at {where} in shared memory"
    if ins.effects.memory in (MemoryEffect.COPY, MemoryEffect.REDUCE):
        copy = _payload(t, BulkCopy)
        to, source = (_place(scene, int(copy[x])) for x in ("to", "from_"))
        return f"{int(copy['bytes'])} bytes from {source} to {to}"
    return ""


def _place(scene: Scene, address: int) -> str:
    """A generic or shared address in words."""
    shared = scene.shared_address(address)
    if shared is not None:
        rank = f" of rank {shared[0]}" if scene.resident.size > 1 and address >> RANK_SHIFT else ""
        return named_shared(scene, shared[1]) + rank
    for region in scene.grid.memory:
        if region.start <= address < region.start + region.size:
            return f"byte {address - region.start} of {region.label}" if address > region.start else region.label
    return f"0x{address:x}"


def _tensor_text(t: Any, ins: Instruction) -> str:
    if not ins.effects.multiplies and ins.effects.memory is not MemoryEffect.COPY:
        return ""
    work = _payload(t, TensorWork)
    d = f"lane {int(work['d']) >> 16}, column {int(work['d']) & 0xFFFF} of tensor memory"
    if not ins.effects.multiplies:
        return f"writes {d}"
    a = f"tensor memory, column {int(work['a']) & 0xFFFF}" if work["in_cells"] else f"shared {(int(work['a']) & 0x3FFF) << 4:#x}"
    adds = "adds to" if work["adds"] else "writes"
    return f"reads A at {a}, B at shared {(int(work['b']) & 0x3FFF) << 4:#x}; {adds} D at {d}"
