"""A small CUDA driver binding (ctypes, no CUDA package needed) for the capture tools."""

from __future__ import annotations

import ctypes
import ctypes.util
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tests.support.inputs import DTYPE

JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, JIT_OPTIMIZATION_LEVEL = 5, 6, 7
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# CUtensorMapDataType
MAP_TYPE = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
MAP_TYPE |= {"e4m3": 0, "e5m2": 0, "s8": 0, "s16": 1}
INTERLEAVE, SWIZZLE, FILL = ("none", "16B", "32B"), ("none", "32B", "64B", "128B"), ("zero", "nan")


class CudaError(RuntimeError):
    """A driver call returned an error code."""


class Gpu:
    """Device 0: modules from PTX or cubin, buffers, launches with a time limit."""

    def __init__(self, limit_s: float = 10.0) -> None:
        self.limit_s = limit_s
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuCtxSetLimit", 0, ctypes.c_size_t(16384))  # stack bytes a thread, for recursion

    def call(self, name: str, *args: Any) -> None:
        code = getattr(self.cuda, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'?').decode()}")

    def module(self, image: bytes, level: int | None = None) -> ctypes.c_void_p:
        """Load PTX text, which the driver compiles at an optimisation level (4 unless told), or a cubin."""
        handle, log = ctypes.c_void_p(), ctypes.create_string_buffer(16384)
        keys = (ctypes.c_int * 3)(JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE, JIT_OPTIMIZATION_LEVEL)
        options = (ctypes.c_void_p * 3)(
            ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)), ctypes.c_void_p(level)
        )
        try:
            self.call(
                "cuModuleLoadDataEx",
                ctypes.byref(handle),
                ctypes.c_char_p(image + b"\0"),
                2 if level is None else 3,
                keys,
                options,
            )
        except CudaError as error:
            raise CudaError(f"{error}: {log.value.decode(errors='replace')[:2000]}") from None
        return handle

    def function(self, module: ctypes.c_void_p, entry: str, shared: int = 0) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(handle), module, entry.encode())
        if shared > 48 * 1024:
            self.call("cuFuncSetAttribute", handle, MAX_DYNAMIC_SHARED, shared)
        return handle

    def upload(self, data: np.ndarray) -> ctypes.c_uint64:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(data.nbytes, 256)))
        self.call("cuMemcpyHtoD_v2", pointer, ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes))
        return pointer

    def download(self, pointer: ctypes.c_uint64, data: np.ndarray) -> np.ndarray:
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(data.ctypes.data), pointer, ctypes.c_size_t(data.nbytes))
        return data

    def tensor_map(self, pointer: ctypes.c_uint64, dtype: str, shape: list[int], how: dict[str, Any]) -> Any:
        """cuTensorMapEncodeTiled of a packed array. how: a manifest's `{"tensormap": ..}`; shapes and boxes outermost first."""
        rank, bytes_ = len(shape), np.dtype(DTYPE[dtype]).itemsize
        room = (ctypes.c_uint8 * 192)()  # of which 128 are aligned to 64
        made = (ctypes.c_uint8 * 128).from_buffer(room, -ctypes.addressof(room) % 64)
        strides = [bytes_ * int(np.prod(shape[rank - i :])) for i in range(1, rank)]
        self.call(
            "cuTensorMapEncodeTiled", ctypes.byref(made), MAP_TYPE[dtype], rank, pointer,
            (ctypes.c_uint64 * rank)(*shape[::-1]), (ctypes.c_uint64 * rank)(*strides, 0),
            (ctypes.c_uint32 * rank)(*how["box"][::-1]), (ctypes.c_uint32 * rank)(*how.get("element_strides", [1] * rank)[::-1]),
            INTERLEAVE.index(how.get("interleave", "none")), SWIZZLE.index(how.get("swizzle", "none")), 0,
            FILL.index(how.get("oob_fill", "zero")),
        )  # fmt: skip
        return (ctypes.c_uint8 * 128).from_buffer_copy(made)

    def free(self, pointer: ctypes.c_uint64) -> None:
        self.call("cuMemFree_v2", pointer)

    def start(
        self, function: ctypes.c_void_p, grid: list[int], block: list[int], shared: int, cells: list[Any]
    ) -> None:
        """Launch with ctypes values as parameters and wait; TimeoutError if it does not end."""
        pointers = (ctypes.c_void_p * len(cells))(*[ctypes.cast(ctypes.byref(c), ctypes.c_void_p) for c in cells])
        self.call("cuLaunchKernel", function, *grid, *block, shared, None, pointers, None)
        end = time.monotonic() + self.limit_s
        while self.cuda.cuStreamQuery(None) == 600:  # CUDA_ERROR_NOT_READY
            if time.monotonic() > end:
                raise TimeoutError("kernel did not end")
        self.call("cuCtxSynchronize")

    def launch(
        self,
        module: ctypes.c_void_p,
        entry: str,
        grid: list[int],
        block: list[int],
        shared: int,
        params: list[str],
        args: list[Any],
        initial: Callable[[list[Any]], np.ndarray],
        buffers: Sequence[Any] = (),
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Run a manifest case; yields (argument index, bytes) of each `out` and `inout` array; hidden ones are `bN`."""
        held: list[tuple[str, ctypes.c_uint64, np.ndarray]] = []

        def hold(key: str, arg: list[Any]) -> ctypes.c_uint64:
            data = initial(arg)
            pointer = self.upload(data)
            held.append((key if arg[0] in ("out", "inout") else "", pointer, data.copy()))
            return pointer

        hidden = [hold(f"b{i}", b) for i, b in enumerate(buffers)]
        cells: list[Any] = []
        for i, (kind, arg) in enumerate(zip(params, args + [0] * (len(params) - len(args)))):
            if isinstance(arg, list):
                cells.append(hold(str(i), arg))
            elif isinstance(arg, dict) and "struct" in arg:
                image = bytearray.fromhex(arg["hex"]) if "hex" in arg else bytearray(arg["struct"])
                for offset, dtype, value in arg["fields"]:
                    number = hidden[value["buffer"]].value if isinstance(value, dict) else value
                    raw = np.array(number, dtype=DTYPE[dtype]).tobytes()
                    image[offset : offset + len(raw)] = raw
                cells.append((ctypes.c_uint8 * len(image)).from_buffer(image))
            elif isinstance(arg, dict) and "tensormap" in arg:
                of = buffers[arg["tensormap"]]
                cells.append(self.tensor_map(hidden[arg["tensormap"]], of[1], of[2], arg))
            elif isinstance(arg, dict):
                cells.append(ctypes.c_float(arg["f32"]))
            else:
                cells.append(
                    {"64": ctypes.c_int64, "16": ctypes.c_int16, "u8": ctypes.c_int8}.get(kind[-2:], ctypes.c_int32)(
                        arg
                    )
                )
        self.start(self.function(module, entry, shared), grid, block, shared, cells)
        for key, pointer, data in held:
            if key:
                yield key, self.download(pointer, data)
            self.free(pointer)
