"""Attributes of pointers: the kind of memory, its allocation, its address on the host."""

from mmulator.doors.libcuda.abi import Refused, accepts, api, get, put
from mmulator.doors.libcuda.codes import Code
from mmulator.doors.libcuda.memory import DEVICE, HOST, find, identity_of, kind_of
from mmulator.doors.libcuda.state import POOL, PRIMARY
from mmulator.host.driver.memory import DEVICE_KIND, MANAGED, PINNED, REGISTERED


def attribute(number: int, address: int) -> tuple[int, int]:
    """(value, bytes) of a pointer attribute. Raises Refused."""
    a = find(address)
    kind, identity = kind_of(a.address), identity_of(a.address)
    host = kind in (PINNED, REGISTERED)
    known = {
        1: (PRIMARY, 8), 2: (HOST if host else DEVICE, 4), 3: (address, 8), 6: (0, 4), 7: (identity, 8),
        8: (int(kind == MANAGED), 4), 9: (0, 4), 10: (0, 4), 11: (a.address, 8), 12: (a.size, 8), 13: (1, 4), 14: (0, 8),
        15: (0, 4), 16: (3, 4), 17: (POOL if kind == DEVICE_KIND else 0, 8), 20: (identity, 8),
    }  # fmt: skip
    if host or kind == MANAGED:
        known[4] = (address, 8)
    if number not in known:
        raise Refused(Code.INVALID_VALUE)
    return known[number]


@api("cuPointerGetAttribute", "pip")
def pointer_attribute(out: int, number: int, address: int) -> None:
    value, size = attribute(number, address)
    put(out, value, size)


_UNKNOWN = {9: (-2, 4), 1: (0, 8), 2: (0, 4), 3: (0, 8), 4: (0, 8), 8: (0, 4), 13: (0, 4)}


@api("cuPointerGetAttributes", "uppp")
def pointer_attributes(number: int, numbers: int, outs: int, address: int) -> None:
    """Write several attributes of a pointer; those of unknown memory are zeros, and no error."""
    for n in range(number):
        which, out = get(numbers + 4 * n, 4), get(outs + 8 * n)
        try:
            value, size = attribute(which, address)
        except Refused:
            value, size = _UNKNOWN.get(which, (0, 8))
        put(out, value, size)


accepts("cuPointerSetAttribute", "pip", lambda value, number, address: find(address))
