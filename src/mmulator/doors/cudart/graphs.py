"""Graphs, captures of streams and objects of the program: the driver API's functions with the runtime's structs."""

from collections.abc import Callable
from typing import Any

from mmulator.doors.cudart.binaries import kernel
from mmulator.doors.cudart.launches import launched
from mmulator.doors.cudart.memory import DEVICE_TO_HOST, ENDS, HOST_TO_DEVICE, box, plain, symbol_place
from mmulator.doors.cudart.rows import api, refuses, thread
from mmulator.doors.graphs import calls, captures, structs
from mmulator.doors.graphs.operations import CopyWork
from mmulator.doors.libcuda.abi import EDGED, put, put_bytes, put_int, without


def versioned(name: str, signature: str, place: int, function: Callable[..., Any]) -> None:
    """A function that has an array of edges since CUDA 13, and in CUDA 12 under the name with `_v2`."""
    older = without(place, function)
    api(f"cuda{name}_v2", signature)(lambda *args: function(*args))
    api(f"cuda{name}", signature)(lambda *args: function(*args) if thread.version >= 13 else older(*args[:-1]))


def write_box(at: int, copy: CopyWork) -> None:
    """Write a cudaMemcpy3DParms."""
    put_bytes(at, bytes(160))
    for base, end in ((at, copy.source), (at + 64, copy.to)):
        for place, value in ((32, end.address), (40, end.pitch), (48, copy.width), (56, end.height)):
            put(base + place, value)
    for place, value in ((128, copy.width), (136, copy.height), (144, copy.depth)):
        put(at + place, value)
    put_int(at + 152, ENDS.index((copy.source.where, copy.to.where)))


for _name, (_signature, _place, _function) in EDGED.items():
    versioned(_name, _signature, _place, _function)
_add_any = structs.with_structs(
    structs.Structs(kernel, box, write_box), lambda name, signature: api(f"cuda{name}", signature)
)
versioned("GraphAddNode", "ppppqp", 3, _add_any)


@api("cudaGraphLaunch", "pp")
def launch(graph: int, stream: int) -> None:
    launched(calls.launch, graph, stream)


# copies of bytes, from and to variables ---------------------------------------------------------------------------------
def _to_symbol(symbol: int, source: int, size: int, offset: int, kind: int) -> CopyWork:
    return plain(symbol_place(symbol, offset, size, kind, HOST_TO_DEVICE), source, size, kind)


def _from_symbol(to: int, symbol: int, size: int, offset: int, kind: int) -> CopyWork:
    return plain(to, symbol_place(symbol, offset, size, kind, DEVICE_TO_HOST), size, kind)


def _copies(form: str, signature: str, make: Callable[..., CopyWork]) -> None:
    api(f"cudaGraphAddMemcpyNode{form}", f"pppq{signature}")(
        lambda out, graph, after, number, *args: calls.add(out, graph, after, number, make(*args))
    )
    api(f"cudaGraphMemcpyNodeSetParams{form}", f"p{signature}")(lambda node, *args: calls.change(node, make(*args)))
    api(f"cudaGraphExecMemcpyNodeSetParams{form}", f"pp{signature}")(
        lambda graph, node, *args: calls.change(node, make(*args), graph)
    )


_copies("1D", "ppqu", plain)
_copies("ToSymbol", "ppqqu", _to_symbol)
_copies("FromSymbol", "ppqqu", _from_symbol)


# captures ---------------------------------------------------------------------------------------------------------------
api("cudaStreamGetCaptureInfo", "ppppppp")(
    lambda *args: captures.capture_info(*args) if thread.version >= 13 else captures.capture_info_1(*args[:3])
)

refuses("conditional nodes of graphs are not modelled", "cudaGraphConditionalHandleCreate")
refuses("semaphores of other programming interfaces are not modelled", " ".join(
    f"cudaGraph{what}" for way in ("Signal", "Wait") for what in (
        f"AddExternalSemaphores{way}Node", f"ExternalSemaphores{way}NodeGetParams", f"ExternalSemaphores{way}NodeSetParams",
        f"ExecExternalSemaphores{way}NodeSetParams")))  # fmt: skip
