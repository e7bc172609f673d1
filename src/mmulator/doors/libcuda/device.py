"""Devices and contexts: one device, the chip of the driver, and one context that lives as long as the process."""

from collections.abc import Callable

from mmulator.doors.libcuda.abi import Refused, accepts, answers, api, c_string, name_of, put, put_bytes, put_int, text, untaken
from mmulator.doors.libcuda.codes import CODES, Code, texts
from mmulator.doors.libcuda.state import POOL, PRIMARY, CudaContext, check_device, state
from mmulator.doors.library import lifetime
from mmulator.host.driver.chips import DRIVER_VERSION
from mmulator.host.driver.streams import ordering
from mmulator.runtime.launch import printing
from mmulator.runtime.launch.limits import KIB, MAX_LOCAL

ATTRIBUTES = range(1, 148)  # numbers of CUdevice_attribute that the driver of CUDA 13.0 knows


@api("cuInit", "u")
def init(flags: int) -> None:
    if flags:
        raise Refused(Code.INVALID_VALUE)
    state()


answers("cuDriverGetVersion", "p", lambda: DRIVER_VERSION)


@api("cuGetErrorName", "ip")
def get_error_name(code: int, out: int) -> int | None:
    name = name_of(code)
    lifetime.read_errors(code)
    put(out, c_string(name) if name else 0)
    return None if name else Code.INVALID_VALUE


@api("cuGetErrorString", "ip")
def get_error_string(code: int, out: int) -> int | None:
    """The text of a code: that of the last error of this thread, if it has the code, else a general one."""
    if code not in CODES:
        put(out, 0)
        return Code.INVALID_VALUE
    why = untaken() if code else None
    lifetime.read_errors(code)
    put(out, c_string(str(why) if why else texts().get(code, ("", CODES[code].lower().replace("_", " ")))[1]))
    return None


# devices ------------------------------------------------------------------------------------------------------------
@api("cuDeviceGet", "pi")
def device_get(out: int, ordinal: int) -> None:
    check_device(ordinal)
    put_int(out, 0)


answers("cuDeviceGetCount", "p", lambda: 1)


@api("cuDeviceGetName", "pii")
def device_get_name(out: int, size: int, device: int) -> None:
    check_device(device)
    put_bytes(out, state().driver.device.product.encode()[: size - 1] + b"\0")


@api("cuDeviceGetUuid cuDeviceGetUuid_v2", "pi")
def device_get_uuid(out: int, device: int) -> None:
    check_device(device)
    put_bytes(out, uuid())


def uuid() -> bytes:
    """The 16 bytes that name the device."""
    return state().driver.device.uuid


def _of_device(value: Callable[[], int]) -> Callable[[int], int]:
    """A number that a function answers about the only device."""

    def number(device: int) -> int:
        check_device(device)
        return value()

    return number


answers("cuDeviceTotalMem cuDeviceTotalMem_v2", "pi", _of_device(lambda: state().driver.device.memory), 0, 8, 3020)


@api("cuDeviceGetAttribute", "pii", runtime=True)
def device_get_attribute(out: int, attribute: int, device: int) -> None:
    check_device(device)
    if attribute not in ATTRIBUTES or not out:
        raise Refused(Code.INVALID_VALUE)
    put_int(out, state().driver.device.attributes.get(attribute, 0))


@api("cuDeviceComputeCapability", "ppi")
def device_compute_capability(major: int, minor: int, device: int) -> None:
    check_device(device)
    for out, value in zip((major, minor), state().driver.device.capability):
        put_int(out, value)


_BUS = "0000:01:00.0"


@api("cuDeviceGetPCIBusId", "pii", runtime=True)
def device_get_bus(out: int, size: int, device: int) -> None:
    check_device(device)
    if not out:
        raise Refused(Code.INVALID_VALUE)
    put_bytes(out, _BUS.encode()[: size - 1] + b"\0")
    if size <= len(_BUS):
        raise Refused(Code.INVALID_VALUE)


@api("cuDeviceGetByPCIBusId", "pp", runtime=True)
def device_by_bus(out: int, bus: int) -> None:
    if text(bus) != _BUS:
        raise Refused(Code.INVALID_DEVICE)
    put_int(out, 0)


@api("cuDeviceCanAccessPeer", "pii", runtime=True)
def device_can_access_peer(out: int, device: int, peer: int) -> None:
    check_device(device)
    check_device(peer)
    put_int(out, 0)


answers("cuDeviceGetDefaultMemPool cuDeviceGetMemPool", "pi", _of_device(lambda: POOL), 0, 8, runtime=True)


# contexts -----------------------------------------------------------------------------------------------------------
@api("cuDevicePrimaryCtxRetain", "pi")
def primary_retain(out: int, device: int) -> None:
    check_device(device)
    state().retained += 1
    put(out, PRIMARY)


@api("cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2", "i", 11000, back=True)
def primary_release(device: int) -> None:
    check_device(device)
    state().retained = max(state().retained - 1, 0)


@api("cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2", "i", 11000)
def primary_reset(device: int) -> None:
    """Reset the context. Memory and modules of the program stay: CUDA's driver would take them away."""
    check_device(device)
    state().retained = 0
    state().contexts.clear()


@api("cuDevicePrimaryCtxGetState", "ipp")
def primary_state(device: int, flags: int, active: int) -> None:
    check_device(device)
    put_int(flags, 0)
    put_int(active, int(state().retained > 0))


accepts("cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2", "iu", check_device, 11000)


def _context(handle: int) -> int:
    if handle != PRIMARY and not isinstance(state().objects.get(handle), CudaContext):
        raise Refused(Code.INVALID_CONTEXT)
    return handle


@api("cuCtxCreate cuCtxCreate_v2", "pui", 3020)
def context_create(out: int, flags: int, device: int) -> None:
    check_device(device)
    handle = state().add(CudaContext())
    state().contexts.append(handle)
    put(out, handle)


api("cuCtxCreate_v3", "ppiui", 11040)(lambda out, affinities, number, flags, device: context_create(out, flags, device))
api("cuCtxCreate_v4", "ppui", 12050)(lambda out, parameters, flags, device: context_create(out, flags, device))


@api("cuCtxDestroy cuCtxDestroy_v2", "p", 4000)
def context_destroy(handle: int) -> None:
    state().find(handle, CudaContext)
    del state().objects[handle]
    if state().contexts[-1:] == [handle]:
        state().contexts.pop()


def current_context() -> int:
    """Handle of this thread's context. Raises Refused where the thread has none."""
    stack = state().contexts
    if not stack:
        raise Refused(Code.INVALID_CONTEXT)
    return stack[-1]


@api("cuCtxAttach", "pu")
def context_attach(out: int, flags: int) -> None:
    handle = current_context()
    if handle != PRIMARY:
        state().find(handle, CudaContext).holders += 1
    put(out, handle)


@api("cuCtxDetach", "p")
def context_detach(handle: int) -> None:
    found = state().find(handle, CudaContext)
    found.holders -= 1
    if not found.holders:
        context_destroy(handle)


@api("cuCtxGetCurrent", "p")
def context_get(out: int) -> None:
    put(out, state().contexts[-1] if state().contexts else 0)


@api("cuCtxSetCurrent", "p")
def context_set(handle: int) -> None:
    stack = state().contexts
    del stack[-1:]
    if handle:
        stack.append(_context(handle))


@api("cuCtxPushCurrent cuCtxPushCurrent_v2", "p", 4000)
def context_push(handle: int) -> None:
    state().contexts.append(_context(handle))


@api("cuCtxPopCurrent cuCtxPopCurrent_v2", "p", 4000)
def context_pop(out: int) -> None:
    put(out, current_context())
    state().contexts.pop()


@api("cuCtxGetDevice", "p")
def context_device(out: int) -> None:
    current_context()
    put_int(out, 0)




@api("cuCtxSynchronize", "")
def synchronize() -> None:
    """Each launch is over when its call returns; a sanitized program has waited."""
    current_context()
    if ordering:
        ordering[-1].synchronize()


api("cuCtxSynchronize_v2", "p", 13000)(lambda _: synchronize())
# flags say how to wait; there is no second cache to set aside, and no profiler
accepts("cuCtxSetFlags", "u")
accepts("cuCtxResetPersistingL2Cache cuProfilerStart cuProfilerStop")
accepts("cuCtxSetCacheConfig cuCtxSetSharedMemConfig", "i")  # hints
answers("cuCtxGetDevice_v2", "pp", lambda context: 0, since=13000)
answers("cuCtxGetApiVersion", "pp", lambda handle: 3020, 1)
answers("cuCtxGetId", "pp", lambda handle: 1, 1, 8)


@api("cuCtxGetStreamPriorityRange", "pp", runtime="DeviceGetStreamPriorityRange")
def priorities(least: int, greatest: int) -> None:
    put_int(least, 0)
    put_int(greatest, -5)


_PRINTF, _DEPTH = 1, {3, 9}  # waits of launched kernels; shared memory of a graphics context: not with this driver
_most = (1 << 64) - 1
_set: dict[int, int] = {}  # by cuCtxSetLimit


def _limit(number: int) -> tuple[int, int, int, int]:
    """A limit as an H200 has it with driver 580: its value, the step that values are rounded up to, the least one and the most,
    0 where none can be set. Raises Refused.

    By their numbers: stack of a thread, printf's buffer, the heap of malloc, launches of launched kernels, bytes that the second
    cache fetches, bytes that it keeps, shared memory of a block, a graphics context.
    """
    chip = state().driver.device
    l2, kept = chip.l2, chip.persisting
    known = {
        0: (KIB, 16, 0, MAX_LOCAL - 1), _PRINTF: (printing.LIMIT, 1, 512 * KIB, _most), 2: (8 << 20, 64 * KIB, 4 << 20, _most),
        4: (2048, 32, 32, _most), 5: (64, 1, 0, 128), 6: (l2 * 3 // 16 * bool(kept), l2 // 16, 0, kept),
        7: (chip.shared, 1, 0, 0), 8: (0, 1, 0, 0),
    }  # fmt: skip
    if number not in known:
        raise Refused(Code.UNSUPPORTED_LIMIT if number in _DEPTH else Code.INVALID_VALUE)
    return known[number]


@api("cuCtxGetLimit", "pi", runtime="DeviceGetLimit ThreadGetLimit")
def get_limit(out: int, limit: int) -> None:
    put(out, _set.get(limit, _limit(limit)[0]))


@api("cuCtxSetLimit", "iq", runtime="DeviceSetLimit ThreadSetLimit")
def set_limit(limit: int, value: int) -> None:
    _, step, least, most = _limit(limit)
    if value > most or not most:
        raise Refused(Code.INVALID_VALUE if most else Code.NOT_PERMITTED)
    _set[limit] = max(-(-value // step) * step, least)
    if limit == _PRINTF:
        printing.buffer[0] = _set[limit]


MAPS_HOST, FOUR_BYTES = 8, 1  # of the flags of a context; the width of a bank of shared memory


answers("cuCtxGetFlags", "p", lambda: MAPS_HOST)
answers("cuCtxGetSharedMemConfig", "p", lambda: FOUR_BYTES, runtime="DeviceGetSharedMemConfig")
answers("cuCtxGetCacheConfig", "p", lambda: 0)


@api("cuDeviceGetP2PAttribute", "piii", runtime=True)
def peer_attribute(out: int, number: int, device: int, peer: int) -> None:
    raise Refused(Code.INVALID_DEVICE)


@api("cuCtxEnablePeerAccess", "pu")
@api("cuCtxDisablePeerAccess", "p")
def peer_access(context: int) -> None:
    raise Refused(Code.PEER_ACCESS_UNSUPPORTED)


@api("cuDeviceGetLuid", "ppi")
def luid(out: int, mask: int, device: int) -> None:
    raise Refused(Code.NOT_SUPPORTED)


@api("cuDeviceGetHostAtomicCapabilities", "ppui", 13000, runtime=True)
def host_atomics(out: int, operations: int, number: int, device: int) -> None:
    """Write no capability for each operation, as of a device on PCIe (CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED is 0)."""
    for n in range(number):
        put_int(out + 4 * n, 0)
