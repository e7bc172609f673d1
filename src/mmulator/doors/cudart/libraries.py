"""Libraries of kernels that a program loads, hints on memory, batches of copies, attributes of streams, and CUDA's log."""

from ctypes import c_void_p

from mmulator.doors.cudart.rows import accepts, api, plain, refuses, shared, thread
from mmulator.doors.libcuda import hints, modules
from mmulator.doors.libcuda import memory as driver
from mmulator.doors.libcuda.abi import Refused, put
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.nvrtc import resident_nvrtc

# NVRTC's cubins, taken by a program that finds these functions in our library first: each is followed by its PTX ---------------
plain("nvrtcGetCUBINSize", "pp", lambda program, out: resident_nvrtc().nvrtcGetCUBINSize(c_void_p(program), c_void_p(out)))
plain("nvrtcGetCUBIN", "pp", lambda program, out: resident_nvrtc().nvrtcGetCUBIN(c_void_p(program), c_void_p(out)))

# names and signatures that the runtime shares with the driver ----------------------------------------------------------------
shared(
    ("LibraryLoadData", "ppppuppu", modules.module_load_data), ("LibraryLoadFromFile", "ppppuppu", modules.module_load),
    ("LibraryUnload", "p", modules.module_unload), ("LibraryGetKernel", "ppp", modules.get_function),
    ("LibraryGetGlobal", "pppp", modules.module_global), ("LibraryGetManaged", "pppp", modules.module_global),
    ("LibraryGetKernelCount", "pp", modules.kernel_count), ("LibraryEnumerateKernels", "pup", modules.kernels),
    ("MemRangeGetAttribute", "pqipq", hints.range_attribute), ("MemRangeGetAttributes", "pppqpq", hints.range_attributes),
    ("MemAdvise_v2", "pqiq", hints.advise_2), ("MemPrefetchAsync_v2", "pqqup", hints.prefetch_2),
    ("MemPrefetchBatchAsync", "ppqppqqp", hints.prefetches), ("MemDiscardAndPrefetchBatchAsync", "ppqppqqp", hints.prefetches),
    ("MemDiscardBatchAsync", "ppqqp", hints.discards),
    ("MemGetMemPool", "ppi", driver.memory_pool), ("MemGetDefaultMemPool", "ppi", driver.memory_pool),
    ("MemSetMemPool", "pip", hints.set_location_pool),
    ("StreamGetAttribute", "pip", hints.get_attribute), ("StreamSetAttribute", "pip", hints.set_attribute),
    ("StreamCopyAttributes", "pp", hints.copy_attributes), ("StreamAttachMemAsync", "ppqu", hints.attach),
    ("DeviceGetHostAtomicCapabilities", "ppui", hints.host_atomics),
)  # fmt: skip


# functions whose arguments differ between CUDA 12 and 13 ----------------------------------------------------------------------
@api("cudaMemAdvise", "pqiq")
def advise(address: int, size: int, advice: int, where: int) -> None:
    """Keep a hint. where: the number of a device until CUDA 12, a cudaMemLocation since CUDA 13."""
    (hints.advise_2 if thread.version >= 13 else hints.advise)(address, size, advice, _place(where))


@api("cudaMemPrefetchAsync", "pqqpp")
def prefetch(address: int, size: int, where: int, third: int, fourth: int) -> None:
    """Keep where memory should be. third, fourth: a stream until CUDA 12; flags and a stream since CUDA 13."""
    if thread.version >= 13:
        hints.prefetch_2(address, size, where, 0, fourth)
    else:
        hints.prefetch(address, size, _place(where), third)


def _place(word: int) -> int:
    """A cudaMemLocation as it is, or an int of a register, by version."""
    low = word & 0xFFFFFFFF
    return word if thread.version >= 13 else low - (low >> 31 << 32)


@api("cudaMemcpyBatchAsync", "pppqppqpp")
def copies(
    to: int, sources: int, sizes: int, number: int, attributes: int, indices: int, sets: int, last: int, stream: int
) -> None:
    """Copy arrays. last: the stream since CUDA 13; until CUDA 12 the place of a failing copy's number, and the stream follows."""
    hints.copies(to, sources, sizes, number, attributes, indices, sets, last if thread.version >= 13 else stream)


@api("cudaDeviceGetP2PAtomicCapabilities", "ppuii")
def peer_atomics(out: int) -> None:
    raise Refused(Code.INVALID_DEVICE)


@api("cudaLibraryGetUnifiedFunction", "ppp")
def unified_function(out: int, library: int, name: int) -> None:
    put(out, 0)
    raise Refused(Code.NOT_FOUND)


accepts("cudaDeviceFlushGPUDirectRDMAWrites", "ii", "nobody writes from outside")
refuses("batches of boxes are not written", "cudaMemcpy3DBatchAsync")
refuses("the device sends no notifications", "cudaDeviceRegisterAsyncNotification cudaDeviceUnregisterAsyncNotification")
refuses(
    "CUDA's log is not written: reasons of failed calls stand on standard error",
    "cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory cudaLogsRegisterCallback cudaLogsUnregisterCallback",
)
