"""Files with PTX in them: fat binaries, programs, libraries, objects, archives, and cubins with PTX behind them."""

import re
from collections.abc import Iterator, Sequence

from mmulator.base.errors import LaunchError, MmulatorError, UnsupportedError
from mmulator.base.names import choose, readable
from mmulator.isa.targets import DEVICES
from mmulator.ptx.toolkit import fatbin
from mmulator.ptx.toolkit.cubin import number_of, ptx_within
from mmulator.ptx.toolkit.joining import join, read

USUAL = "sm_90"  # the device of programs that name none
_START = fatbin.MAGIC.to_bytes(4, "little") + b"\1\0\x10\0"  # with the version and the size of the header
_KERNEL = re.compile(r"\.entry\s+([\w$]+)")


def holds(data: bytes) -> bool:
    """Whether a file has a place for PTX: a cubin, or anything with a fat binary in it."""
    return number_of(data) is not None or _START in data


def ptx_in(data: bytes, name: str, device: str | None = None, entry: str | None = None) -> str:
    """The PTX in a file that `holds` it.

    name: of the file, for errors.
    device: `sm_90`, whose PTX is taken as CUDA's driver does; None: sm_90, or, for a file that does not run on it, the nearest.
    entry: a kernel, by a part of its name. Of several modules that one is taken which has it; without a kernel they are linked.

    Raises UnsupportedError where there is no PTX for the device, LaunchError for an unknown kernel and for modules that are no
    one module, MmulatorError for a damaged file.
    """
    number = number_of(data)
    if number is not None:
        return ptx_within(data) or _refuse_cubin(name, number)
    try:
        found = list(_fat_binaries(data))
    except MmulatorError as error:
        raise type(error)(f"{name}: {error.message}") from None
    every = [entry for entries in found for entry in entries]
    device = device or _device(every)
    taken = [best for entries in found if (best := fatbin.chosen(entries, device))]
    if not taken:
        raise fatbin.missing(every, device, name)
    try:
        texts = [text for best in taken if fatbin.DEVICE_RUNTIME not in (text := best.text())]
    except MmulatorError as error:
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from None
    return texts[0] if len(texts) == 1 else _one(texts, name, entry)


def _refuse_cubin(name: str, number: int) -> str:
    target = fatbin.own_target(f"sm_{number}")
    raise UnsupportedError(
        f"{name} is not PTX text: it is a cubin: machine code of sm_{number}, without PTX",
        rule="machine code runs on a GPU alone",
        hint=f"`mmulator nvcc -cubin` puts the PTX behind a cubin; or compile with -ptx, or with {fatbin.keeping(target)}",
    )


def _fat_binaries(data: bytes) -> Iterator[tuple[fatbin.FatEntry, ...]]:
    """The entries of each fat binary in a file, wherever it lies."""
    at = data.find(_START)
    while at >= 0:
        read = fatbin.reader(data, at)
        yield fatbin.entries(read)
        at = data.find(_START, at + fatbin.size_of(read))


def _device(entries: Sequence[fatbin.FatEntry]) -> str:
    """The device on which a file's kernels run where the caller names none."""
    targets = {entry.target for entry in entries if entry.kind == "PTX"}
    return next((d for d in (USUAL, *DEVICES) if any(target.runs_on(d) for target in targets)), USUAL)


def _one(texts: Sequence[str], name: str, entry: str | None) -> str:
    """One module of several: what has the kernel, with all others where it needs them."""
    kernels: dict[str, int] = {}
    for n, text in enumerate(texts):
        for kernel in _KERNEL.findall(text):
            kernels.setdefault(kernel, n)
    if entry is not None:
        own = kernels[choose(kernels, entry, f"{name} has no kernel")]
        if not _needs(texts, own):
            return texts[own]
    try:
        return join(texts)
    except LaunchError as error:
        each: dict[int, list[str]] = {}
        for kernel, n in kernels.items():
            each.setdefault(n, []).append(readable(kernel))
        listed = "; ".join(", ".join(names[:4]) + ", ..." * (len(names) > 4) for names in list(each.values())[:8])
        raise LaunchError(
            f"{name} has {len(texts)} modules, which cannot be loaded as one: {error.message}",
            hint=f"name a kernel (--entry, entry=), and its module is loaded; kernels by module: {listed}",
        ) from None


def _needs(texts: Sequence[str], own: int) -> bool:
    """Whether a text declares what another one defines."""
    if ".extern" not in texts[own]:
        return False
    wanted = {item.name for item in read(texts[own]).items if item.linkage == "extern"}
    return any(i.name in wanted and i.linkage != "extern" and i.defines
               for n, t in enumerate(texts) if n != own for i in read(t).items)  # fmt: skip
