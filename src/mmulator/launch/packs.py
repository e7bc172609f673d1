"""Memory where a thread of the host keeps packed operands of wgmma (native/matrix/wgmma_products.py)."""

import threading

import numpy as np

from mmulator.compiler.emit.code import MatrixTables
from mmulator.launch.arena import pointer
from mmulator.native.state import A_PACKS, B_PACKS, INDICES, WGMMA_STEPS, Packs

_ALIGNED = 64
_MOST = 4  # kinds of kernels, by the sizes of their operands, for which a thread keeps memory


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.kept: dict[tuple[tuple[int, int], tuple[int, int]], tuple[np.ndarray, int]] = {}


_of_thread = _OfThread()


def packs_for(matrix: MatrixTables) -> int:
    """Where the Packs of this thread lie, for kernels with operands of such sizes."""
    kept, key = _of_thread.kept, (matrix.a_pack, matrix.b_pack)
    found = kept.get(key)
    if found is None:
        for old in list(kept)[: 1 - _MOST]:
            del kept[old]
        found = kept[key] = _new(*key)
    return found[1]


def _new(a: tuple[int, int], b: tuple[int, int]) -> tuple[np.ndarray, int]:
    (a_raw, a_packed), (b_raw, b_packed) = ([-(-size // _ALIGNED) * _ALIGNED for size in sizes] for sizes in (a, b))
    a_bytes, b_bytes = a_raw + a_packed, b_raw + b_packed
    head = -(-Packs.size // _ALIGNED) * _ALIGNED
    parts = head, A_PACKS * a_bytes, B_PACKS * b_bytes, WGMMA_STEPS * a_bytes, WGMMA_STEPS * INDICES * 4
    memory = np.zeros(sum(parts) + _ALIGNED, np.uint8)
    skip = -pointer(memory) % _ALIGNED
    address = pointer(memory) + skip
    packs = memory[skip : skip + Packs.size].view(Packs.numpy_dtype())
    for name, at in zip(("a_slots", "b_slots", "registers", "indices"), np.cumsum(parts)):
        packs[name] = address + int(at)
    packs["a_raw"], packs["a_bytes"], packs["b_raw"], packs["b_bytes"] = a_raw, a_bytes, b_raw, b_bytes
    return memory, address
