"""The device and its properties, limits, versions, and the errors of a thread."""

import struct
from ctypes import c_void_p
from functools import cache

from mmulator.base.refusals import register
from mmulator.doors.cudart import rows
from mmulator.doors.cudart.rows import accepts, answers, api, process, refuses, thread
from mmulator.doors.libcuda import device as driver
from mmulator.doors.libcuda.abi import Refused, c_string, needed, put, put_bytes
from mmulator.doors.libcuda.codes import Code, texts
from mmulator.doors.libcuda.state import check_device, state
from mmulator.doors.library import lifetime, x86_64
from mmulator.doors.library.machines import HERE
from mmulator.doors.nvrtc import resident_nvrtc
from mmulator.host.driver.chips import DRIVER_VERSION
from mmulator.host.driver.streams import ordering

# Fields of cudaDeviceProp: name, C type, and the number of CUdevice_attribute that it shows (or several, for an array). Fields
# without a number are 0 or set by name. CUDA 13 left out what stands in _TWELVE, and has the fields of _THIRTEEN and behind it.
_FIELDS = """
name:256s uuid:16s luid:8s luidDeviceNodeMask:I totalGlobalMem:Q sharedMemPerBlock:Q=8 regsPerBlock:i=12 warpSize:i=10
memPitch:Q=11 maxThreadsPerBlock:i=1 maxThreadsDim:3i=2,3,4 maxGridSize:3i=5,6,7 clockRate:i=13 totalConstMem:Q=9 major:i=75
minor:i=76 textureAlignment:Q=14 texturePitchAlignment:Q=51 deviceOverlap:i=15 multiProcessorCount:i=16
kernelExecTimeoutEnabled:i=17 integrated:i=18 canMapHostMemory:i=19 computeMode:i=20 maxTexture1D:i=21
maxTexture1DMipmap:i=77 maxTexture1DLinear:i=69 maxTexture2D:2i=22,23 maxTexture2DMipmap:2i=73,74
maxTexture2DLinear:3i=70,71,72 maxTexture2DGather:2i=45,46 maxTexture3D:3i=24,25,26 maxTexture3DAlt:3i=47,48,49
maxTextureCubemap:i=52 maxTexture1DLayered:2i=42,43 maxTexture2DLayered:3i=27,28,29 maxTextureCubemapLayered:2i=53,54
maxSurface1D:i=55 maxSurface2D:2i=56,57 maxSurface3D:3i=58,59,60 maxSurface1DLayered:2i=61,62 maxSurface2DLayered:3i=63,64,65
maxSurfaceCubemap:i=66 maxSurfaceCubemapLayered:2i=67,68 surfaceAlignment:Q=30 concurrentKernels:i=31 ECCEnabled:i=32
pciBusID:i=33 pciDeviceID:i=34 pciDomainID:i=50 tccDriver:i=35 asyncEngineCount:i=40 unifiedAddressing:i=41
memoryClockRate:i=36 memoryBusWidth:i=37 l2CacheSize:i=38 persistingL2CacheMaxSize:i=108 maxThreadsPerMultiProcessor:i=39
streamPrioritiesSupported:i=78 globalL1CacheSupported:i=79 localL1CacheSupported:i=80 sharedMemPerMultiprocessor:Q=81
regsPerMultiprocessor:i=82 managedMemory:i=83 isMultiGpuBoard:i=84 multiGpuBoardGroupID:i=85 hostNativeAtomicSupported:i=86
singleToDoublePrecisionPerfRatio:i=87 pageableMemoryAccess:i=88 concurrentManagedAccess:i=89 computePreemptionSupported:i=90
canUseHostPointerForRegisteredMem:i=91 cooperativeLaunch:i=95 cooperativeMultiDeviceLaunch:i=96 sharedMemPerBlockOptin:Q=97
pageableMemoryAccessUsesHostPageTables:i=100 directManagedMemAccessFromHost:i=101 maxBlocksPerMultiProcessor:i=106
accessPolicyMaxWindowSize:i=109 reservedSharedMemPerBlock:Q=111 hostRegisterSupported:i=99 sparseCudaArraySupported:i=112
hostRegisterReadOnlySupported:i=113 timelineSemaphoreInteropSupported:i=114 memoryPoolsSupported:i=115
gpuDirectRDMASupported:i=116 gpuDirectRDMAFlushWritesOptions:I=117 gpuDirectRDMAWritesOrdering:i=118
memoryPoolSupportedHandleTypes:I=119 deferredMappingCudaArraySupported:i=121 ipcEventSupported:i=125 clusterLaunch:i=120
unifiedFunctionPointers:i=129 deviceNumaConfig:i=130 deviceNumaId:i=131 mpsEnabled:i=133 hostNumaId:i=134
gpuPciDeviceID:I=139 gpuPciSubsystemID:I=140 hostNumaMultinodeIpcSupported:i=143
"""
_TWELVE = {
    "clockRate", "deviceOverlap", "kernelExecTimeoutEnabled", "computeMode", "maxTexture1DLinear", "memoryClockRate",
    "singleToDoublePrecisionPerfRatio", "cooperativeMultiDeviceLaunch",
}  # fmt: skip
_THIRTEEN = "deviceNumaConfig"
_BEHIND = {12: 63 * 4, 13: 4 * 56}  # bytes behind the fields
_ALIGN = {"Q": 8, "i": 4, "I": 4, "s": 1}


@cache
def layout(version: int) -> tuple[dict[str, tuple[int, str, tuple[int, ...]]], int]:
    """(offset, format and attributes of each field by name, size of the struct) of cudaDeviceProp in a version of CUDA."""
    fields, at = {}, 0
    for word in _FIELDS.split():
        name, _, kind = word.partition(":")
        kind, _, numbers = kind.partition("=")
        if version < 13 and name == _THIRTEEN:
            break
        if version >= 13 and name in _TWELVE:
            continue
        align = _ALIGN[kind[-1]]
        at = -(-at // align) * align
        fields[name] = at, kind, tuple(map(int, numbers.split(","))) if numbers else ()
        at += struct.calcsize(f"<{kind}")
    return fields, -(-(at + _BEHIND[version]) // 8) * 8


def properties(version: int) -> bytes:
    """The chip as cudaDeviceProp of a version of CUDA."""
    fields, size = layout(version)
    chip = state().driver.device
    known, memory = chip.attributes, bytearray(size)
    for at, kind, numbers in fields.values():
        if numbers:
            struct.pack_into(f"<{kind}", memory, at, *(known.get(n, 0) for n in numbers))
    for name, value in (("name", chip.product.encode()), ("uuid", driver.uuid()), ("totalGlobalMem", chip.memory)):
        struct.pack_into(f"<{fields[name][1]}", memory, fields[name][0], value)
    return bytes(memory)


@api("cudaGetDeviceProperties", "pi")
def device_properties(out: int, device: int, version: int | None = None) -> None:
    _check(device)
    needed(out)
    put_bytes(out, properties(version or thread.version))


api("cudaGetDeviceProperties_v2", "pi")(lambda out, device: device_properties(out, device, 12))


def _check(device: int) -> None:
    check_device(device & 0xFFFFFFFF)


# devices --------------------------------------------------------------------------------------------------------------
answers("cudaGetDeviceCount", "p", lambda: 1, lost=False)
answers("cudaGetDevice", "p", lambda: 0, lost=False)
answers("cudaChooseDevice", "pp", lambda: 0)
answers("cudaDeviceGetCacheConfig cudaThreadGetCacheConfig", "p", lambda: 0)


@api("cudaSetDevice", "i")
@api("cudaInitDevice", "iuu")
def set_device(device: int) -> None:
    _check(device)


@api("cudaSetValidDevices", "pi")
def set_valid_devices(devices: int, number: int) -> None:
    """Accept a list of devices: there is one."""


@api("cudaDeviceGetP2PAtomicCapabilities", "ppuii")
def peer_atomics(out: int) -> None:
    raise Refused(Code.INVALID_DEVICE)


@api("cudaLibraryGetUnifiedFunction", "ppp")
def unified_function(out: int, library: int, name: int) -> None:
    put(out, 0)
    raise Refused(Code.NOT_FOUND)


@api("cudaDeviceEnablePeerAccess", "iu")
def enable_peer(peer: int) -> None:
    _check(peer)
    raise Refused(Code.PEER_ACCESS_UNSUPPORTED)


@api("cudaDeviceDisablePeerAccess", "i")
def disable_peer(peer: int) -> None:
    _check(peer)
    raise Refused(Code.PEER_ACCESS_NOT_ENABLED)


@api("cudaDeviceSynchronize cudaThreadSynchronize")
def synchronize() -> None:
    """Each launch is over when its call returns; a sanitized program has waited."""
    if ordering:
        ordering[-1].synchronize()


@api("cudaDeviceReset cudaThreadExit", lost=False)
def reset() -> None:
    """Take the device's memory away, and the fault that ended its context."""
    from mmulator.doors.libcuda import memory

    memory.free_all()
    process.sticky = thread.last = register.sticky = rows.SUCCESS
    process.flags = 0


_FLAGS = 0x9F  # how to wait, mapped memory, local memory, synchronous copies


answers("cudaGetDeviceFlags", "p", lambda: process.flags | driver.MAPS_HOST)


@api("cudaSetDeviceFlags", "u")
def set_flags(flags: int) -> None:
    if flags & ~_FLAGS:
        raise Refused(Code.INVALID_VALUE)
    process.flags = flags


answers("cudaDriverGetVersion", "p", lambda: DRIVER_VERSION, lost=False)
answers("cudaRuntimeGetVersion", "p", lambda: rows.VERSIONS[thread.version], lost=False)


# errors ---------------------------------------------------------------------------------------------------------------
def _last(keep: bool) -> int:
    found = thread.last  # also a fault is told once (seen on an H200), although each later call returns it again
    if found:
        lifetime.read_errors(found)
    if not keep:
        thread.last = rows.SUCCESS
    return found


def _text(which: int, code: int) -> int:
    return c_string(texts().get(code, ("unrecognized error code",) * 2)[which])


rows.plain("cudaGetLastError", "", lambda: _last(False))
rows.plain("cudaPeekAtLastError", "", lambda: _last(True))
rows.plain("cudaGetErrorName", "i", lambda code: _text(0, code), pointer=True)
rows.plain("cudaGetErrorString", "i", lambda code: _text(1, code), pointer=True)


# NVRTC's cubins, taken by a program that finds these functions in our library first: each is followed by its PTX ---------------
rows.plain("nvrtcGetCUBINSize", "pp", lambda program, out: resident_nvrtc().nvrtcGetCUBINSize(c_void_p(program), c_void_p(out)))
rows.plain("nvrtcGetCUBIN", "pp", lambda program, out: resident_nvrtc().nvrtcGetCUBIN(c_void_p(program), c_void_p(out)))


def _channel(out: int, *described: int) -> int:
    """Write a cudaChannelFormatDesc: bits of x, y, z and w, and the kind. Returns where it lies, as functions of structs do."""
    put_bytes(out, struct.pack("<5i", *described))
    return out


if HERE is x86_64:  # elsewhere the place comes in a register that functions of Python do not see
    rows.plain("cudaCreateChannelDesc", "piiiii", _channel, pointer=True)

accepts("cudaProfilerStart cudaProfilerStop", "", "there is no profiler to start or stop")
accepts(
    "cudaDeviceSetCacheConfig cudaThreadSetCacheConfig cudaDeviceSetSharedMemConfig", "i",
    "shared memory and the first cache are not divided",
)  # fmt: skip
accepts("cudaSetDoubleForDevice cudaSetDoubleForHost", "p", "doubles are doubles on every chip of this driver")
accepts("cudaCtxResetPersistingL2Cache", "", "there is no second cache to set aside")
refuses(
    "there is one device, and no other process to share it with",
    "cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcOpenEventHandle "
    "cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer cudaMemPoolImportPointer "
    "cudaMemcpy3DPeer cudaMemcpy3DPeerAsync cudaLaunchCooperativeKernelMultiDevice",
)
refuses(
    "textures, surfaces and arrays are not modelled",
    " ".join(n for n in rows.names() if ("Array" in n or "Texture" in n or "Surface" in n or "ChannelDesc" in n) and n[0] == "c"
             and "Graph" not in n and "External" not in n and n not in rows.ROWS),
)  # fmt: skip
refuses(
    "graphics are not modelled",
    " ".join(n for n in rows.names() if any(w in n for w in ("Graphics", "cudaGL", "EGL", "VDPAU"))),
)
refuses("memory and semaphores of other programming interfaces are not modelled", " ".join(
    n for n in rows.names() if ("External" in n and "Graph" not in n) or "NvSci" in n))  # fmt: skip
accepts("cudaDeviceFlushGPUDirectRDMAWrites", "ii", "nobody writes from outside")
refuses("batches of boxes are not written", "cudaMemcpy3DBatchAsync")
refuses("the device sends no notifications", "cudaDeviceRegisterAsyncNotification cudaDeviceUnregisterAsyncNotification")
refuses(
    "CUDA's log is not written: reasons of failed calls stand on standard error",
    "cudaLogsCurrent cudaLogsDumpToFile cudaLogsDumpToMemory cudaLogsRegisterCallback cudaLogsUnregisterCallback",
)
