"""Fields of torch's C++ objects that name their device, read and written in memory. This is the one file that knows their
addresses.

A tensor of the device `cuda` is a tensor of the CPU's that says otherwise: in three fields of two C++ objects (`TensorImpl`:
key set, device; `StorageImpl`: device). Their places differ between versions of torch, so they are found, by comparing two
tensors that differ in nothing else.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.base.versions import TABLE
from mmulator.doors.torch.allocator import Allocator

VERSIONS = TABLE["torch"]
CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_KIND_CPU, _KIND_CUDA = 1, 2  # DLDeviceType
_IMPL_BYTES, _STORAGE_BYTES = 192, 72  # of each object, not more than it has
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA_TYPE = 1  # c10::DeviceType

_word = ctypes.c_uint64.from_address
_half = ctypes.c_uint16.from_address

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


def guard() -> ctypes.c_uint64:
    """The place where torch keeps the device guard of CUDA; 0 where there is none. Raises UnsupportedError.

    Newer versions put a guard without effect there, when asked to and if the guard they find counts no devices. A build without
    CUDA finds no guard and gives up, so it is shown one for as long as the question takes.
    """
    library = Path(torch.__file__).parent / "lib" / "libc10.so"
    try:
        registry = (ctypes.c_uint64 * 2).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except (OSError, ValueError) as error:
        raise UnsupportedError(
            f"torch {torch.__version__} keeps its device guards elsewhere: {error}", hint=VERSIONS.mend
        ) from None
    place = ctypes.c_uint64.from_address(ctypes.addressof(registry) + 8 * _CUDA_TYPE)
    if "_ensureCUDADeviceGuardSet" in vars(torch._C):
        nothing = ctypes.CFUNCTYPE(ctypes.c_uint64)(lambda: 0)
        table = (ctypes.c_void_p * 64)(*[ctypes.cast(nothing, ctypes.c_void_p).value] * 64)
        pretended = (ctypes.c_void_p * 1)(ctypes.addressof(table))
        before, place.value = place.value, place.value or ctypes.addressof(pretended)
        torch._C._ensureCUDADeviceGuardSet()
        if place.value == ctypes.addressof(pretended):
            place.value = before
    return place


def _retagged(tensor: torch.Tensor, kind: int) -> torch.Tensor:
    """A tensor's memory as a tensor of another device, by way of DLPack."""
    capsule = torch._C._to_dlpack(tensor)
    ctypes.c_int64.from_address(_pointer_of(capsule, b"dltensor") + 8).value = kind
    return torch._C._from_dlpack(capsule)


class TensorFields:
    """Places of the fields.

    keys, device: in a TensorImpl, bytes from the start.
    storage_device: in a StorageImpl.
    flip: bits of the key set that tell a tensor of the CPU from one of CUDA.
    dense: key sets of ordinary CPU tensors.
    """

    def __init__(self) -> None:
        own = torch.zeros(3, dtype=torch.float32)
        cpu, cuda = _retagged(own, _KIND_CPU), _retagged(own, _KIND_CUDA)
        if (cpu.device.type, cuda.device.type) != ("cpu", "cuda"):
            raise UnsupportedError(f"torch {torch.__version__} takes no tensors of CUDA's by DLPack")
        a, b = (ctypes.string_at(t._cdata, _IMPL_BYTES) for t in (cpu, cuda))
        keys = [torch._C._dispatch_keys(t).raw_repr() for t in (cpu, cuda)]
        self.flip = keys[0] ^ keys[1]
        self.keys = _offset("key set", a, b, struct.pack("<Q", keys[0]), struct.pack("<Q", keys[1]), step=8)
        self.device = _offset("device", a, b, b"\x00\xff\x01", b"\x01\x00\x01", step=2)
        a, b = (ctypes.string_at(t.untyped_storage()._cdata, _STORAGE_BYTES) for t in (cpu, cuda))
        self.storage_device = _offset("storage's device", a, b, b"\x00\xff", b"\x01\x00", step=2)
        with torch.inference_mode():
            inference = torch._C._dispatch_keys(torch.empty(0)).raw_repr()
        self.dense = frozenset((keys[0], inference))


def _offset(what: str, a: bytes, b: bytes, in_a: bytes, in_b: bytes, step: int) -> int:
    found = [n for n in range(0, len(a) - len(in_a) + 1, step) if a[n:].startswith(in_a) and b[n:].startswith(in_b)]
    if len(found) != 1:
        raise UnsupportedError(f"the {what} of a tensor of torch {torch.__version__} is not found", hint=VERSIONS.mend)
    return found[0]


_CPU_DEVICE = 0xFF00  # type 0, index -1

fields: TensorFields
memory: Allocator
_keys_at = _storage_at = 0
_dense: frozenset[int] = frozenset()


def find() -> None:
    """Look for the fields, and take over torch's memory; once. Raises UnsupportedError."""
    global fields, memory, _keys_at, _storage_at, _dense, _take
    fields = TensorFields()
    memory = Allocator(fields.keys, fields.device, fields.flip, fields.storage_device)
    _take = memory.take
    _keys_at, _storage_at = fields.keys, fields.storage_device
    _dense = fields.dense


_take: Any = None


def to_cuda(tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
    """Make a CPU tensor that has no other user a tensor of cuda:0. storage: its storage, without another user either."""
    _take(tensor._cdata, storage._cdata)


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a CPU tensor is plain memory with strides."""
    return _word(tensor._cdata + _keys_at).value in _dense


def resize_storage(storage: torch.UntypedStorage, size: int) -> None:
    """Resize a storage of cuda:0 by the CPU's allocator, which it came from. Contents stay as far as they reach."""
    place = storage._cdata + _storage_at
    _half(place).value = _CPU_DEVICE
    try:
        torch._C.StorageBase.resize_(storage, size)
    finally:
        _take(0, storage._cdata)
