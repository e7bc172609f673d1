"""Uses of memory by operators of torch, each on its stream, for the order of a sanitized program (host/driver/order.py).

An operator reads its tensors of cuda, and writes those that its schema says and new ones. Memory of tensors goes back to the
stream that it was allocated on, as with torch's own allocator. Backward passes count as in order: torch lets their streams wait.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from mmulator.doors.torch import cuda_graphs, cuda_streams, objects
from mmulator.host.driver import Stream, current
from mmulator.host.driver.findings import reader
from mmulator.host.driver.order import ProgramOrder
from mmulator.host.driver.streams import ordering
from mmulator.sanitizer.diagnostics.footprint import NONE, Used, together
from mmulator.sanitizer.diagnostics.touched import Runs

MOST = 1 << 16  # runs of one tensor
_COPIES = ("aten::copy_", "aten::copy")
_known: dict[int, tuple[int, Stream]] = {}  # blocks of cuda by address: bytes, and the stream that allocated them
_recorded: dict[int, set[int]] = {}  # by address, lanes that tensor.record_stream has named


# Operators of which torch says (use_deterministic_algorithms) that two runs on one GPU may differ.
_OPEN = re.compile(
    r"_?convolution|index_add|index_put|_index_put_impl|put|scatter_(add|reduce)|histc|bincount|cumsum|kthvalue|median|nll_loss2d|"
    r"(max_unpool|.*(pool|grid_sampler|upsample|_pad|embedding|ctc_loss)).*_backward|max_unpool.*"
)


def _not_promised(name: str) -> str:
    """The name of an operator that may have several results; "" for others, or where the program forbids them."""
    name = name.strip("_")
    allowed = _OPEN.fullmatch(name) and not torch.are_deterministic_algorithms_enabled()
    return name if allowed and not ("convolution" in name and torch.backends.cudnn.deterministic) else ""


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _here() -> Stream:
    return current().stream(cuda_streams.current_handle())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided:
            yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def runs_of(tensor: torch.Tensor) -> Runs:
    """The bytes of a tensor's elements, as runs; those of no line where it has too many."""
    size = tensor.element_size()
    if not tensor.numel():
        return NONE
    begin, end = np.array([tensor.data_ptr()], np.int64), size
    dims = sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n > 1 and s)
    while dims and dims[0][0] * size <= end:
        step, count = dims.pop(0)
        end = max(end, step * size * (count - 1) + end)
    for step, count in dims:
        if len(begin) * count > MOST:
            ordering[-1].forgotten += 1
            return NONE
        begin = (begin[:, None] + step * size * np.arange(count)).ravel()
    return together(np.stack([begin, begin + end], 1))


def _whole(tensors: list[torch.Tensor]) -> Runs:
    found = [runs for t in tensors if len(runs := runs_of(t))]
    return together(np.concatenate(found)) if found else NONE


def done(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """An operator has run. op: dispatch.Operator. args, kwargs: the program's. result: what it returned."""
    if op.views or op.name in cuda_graphs.IDLE or cuda_graphs.capturing():
        return
    order = ordering[-1]
    order.fence = _in_backward
    settle(order)
    names = [a.name for a in op.op._schema.arguments]
    given = [(n, t) for n, value in enumerate(args) for t in _tensors(value)]
    given += [(names.index(name), t) for name, value in kwargs.items() if name in names for t in _tensors(value)]
    storages = {t.untyped_storage().data_ptr() for _, t in given if t.is_cuda}
    fresh = [t for t in _tensors(result) if t.is_cuda and t.untyped_storage().data_ptr() not in storages]
    written = [t for n, t in given if n in op.written and _is_seen(t)]
    read = [t for n, t in given if n not in op.written and _is_seen(t)]
    waits = op.name in cuda_graphs.WAITING or not (fresh or written or any(t.is_cuda for t in _tensors(result)))
    if op.name in _COPIES and args[0].is_cuda != args[1].is_cuda:
        free = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        waits = not free or not (args[0].is_cuda or args[0].is_pinned())
        order.unseen += not waits and not args[0].is_cuda
        if not waits and args[0].is_cuda and args[1].is_pinned():
            order.kept(runs_of(args[1]), args[1])
    if op.name not in _COPIES and (fresh or written):
        reader().called(_not_promised(op.op._opname))
    with order.on(_here()):
        order.done(op.name.removeprefix("aten::"), Used(_whole(read), _whole(written + fresh)), waits)


def _is_seen(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda or tensor.is_pinned())


def born(storage: torch.UntypedStorage) -> None:
    """New memory of cuda."""
    if cuda_graphs.capturing():
        return
    address, size = storage.data_ptr(), storage.nbytes()
    _freed(ordering[-1], address)
    if size:
        ordering[-1].allocated(address, size)
        _known[address] = size, _here()


def recorded(tensor: torch.Tensor, stream: Any) -> None:
    """tensor.record_stream(stream): the allocator waits for the stream before it gives the memory out again."""
    lane = ordering[-1].lane(current().stream(stream.stream_id))
    _recorded.setdefault(tensor.untyped_storage().data_ptr(), set()).add(lane.number)


def settle(order: ProgramOrder) -> None:
    """Hear of blocks that are free by now."""
    there = {region.start for region in objects.memory.blocks()}
    for address in [a for a in _known if a not in there]:
        _freed(order, address)


def _freed(order: ProgramOrder, address: int) -> None:
    size, stream = _known.pop(address, (0, None))
    waited = _recorded.pop(address, set())
    if stream is not None:
        order.freed(address, size, stream, "the memory of a tensor", waited)
