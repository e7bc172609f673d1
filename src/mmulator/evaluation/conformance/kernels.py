"""PTX text of a subject: a kernel in which every block executes the instruction once, on operands of its own.

Parameters are addresses, in the order of `arguments`: values of registers, then the memory image, then the results. Block i
    reads
and writes the i-th part of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.evaluation.conformance.cases import CaseBatch, image_bytes
from mmulator.evaluation.conformance.subjects import Subject
from mmulator.host.backend import Backend
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target
from mmulator.runtime.launch.arguments import Arguments
from mmulator.runtime.launch.launch import How, Launch, compile_options
from mmulator.runtime.launch.shape import LaunchShape

Array = NDArray[Any]
_SCALARS = {"a_desc": 64, "b_desc": 64, "scale_d": 32, "stride": 32}  # one word a block; others one a thread


@dataclass(frozen=True)
class KernelOperand:
    """An operand that the kernel loads: `count` words of `bits` for each thread, or for the block."""

    name: str
    bits: int
    count: int
    per_thread: bool = True


def fields(subject: Subject) -> tuple[KernelOperand, ...]:
    """Operands that the kernel loads into registers, in the order of its parameters."""
    out = []
    for spec in subject.specs:
        if spec.access == "w" or spec.kind in ("immediate", "group"):
            continue
        if spec.key in _SCALARS:
            out.append(KernelOperand(spec.key, _SCALARS[spec.key], 1, per_thread=False))
        elif spec.kind == "address":
            out.append(KernelOperand(spec.key, 32, 1))
        else:
            out.append(KernelOperand(spec.key, _bits(spec), spec.count))
    return tuple(out)


def _bits(spec: OperandSpec) -> int:
    return 64 if spec.type in ("f64", "b64") else 32


def result(subject: Subject) -> KernelOperand | None:
    """The result in registers; None where the instruction writes memory."""
    for spec in subject.specs:
        if spec.access != "r":
            return KernelOperand(spec.key, _bits(spec), spec.count)
    return None


def arguments(batch: CaseBatch) -> tuple[list[Array], Array]:
    """(arrays of the kernel's parameters, results last; the one of them that holds the results)."""
    inputs: list[Array] = []
    for f in fields(batch.subject):
        if f.name in batch.registers:
            inputs.append(np.ascontiguousarray(batch.registers[f.name]))
            continue
        lanes = batch.subject.form.lanes if f.per_thread else 1
        words = np.zeros((batch.count, lanes), f"u{f.bits // 8}")
        for s in batch.segments:
            value = s.scalars[f.name]
            words[s.part] = value.encode() if hasattr(value, "encode") else value
        inputs.append(words)
    if batch.image is not None:
        inputs.append(batch.image)
    out = result(batch.subject)
    if out is None:
        assert batch.image is not None
        return inputs, batch.image
    d = np.zeros((batch.count, batch.subject.form.lanes, out.count), f"u{out.bits // 8}")
    return [*inputs, d], d


def launch(backend: Backend, module: Any, entry: str, batch: CaseBatch, arrays: list[Array], out: Array) -> None:
    """Run a kernel of `module`, one block for each execution; `out` is the one of the arrays that is wanted afterwards."""
    shape = LaunchShape((batch.count, 1, 1), (batch.subject.form.lanes, 1, 1))
    run_kernel(backend, module, entry, shape, Arguments.of_arrays(arrays), [out])


def run_kernel(
    backend: Backend, module: Any, entry: str, shape: LaunchShape, arguments: Arguments, back: Sequence[Array] | None = None
) -> None:
    """Compile a kernel of a backend's module for the backend's chip, run it and wait.

    back: arrays of the arguments that are wanted afterwards; None: all.
    """
    kernel = backend.compile(module, entry, backend.chip.device, compile_options(shape, How()))
    backend.launch(Launch(kernel, shape, arguments, back=back))


# Text ----------------------------------------------------------------------------------------------------------------
def module(subjects: list[Subject], target: Target) -> str:
    """A module with one kernel `k0`, `k1`, ... for each subject."""
    version = max(max(s.form.requires.first_ptx(target) for s in subjects), (7, 0))
    head = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    return head + "\n".join(kernel(s, f"k{i}") for i, s in enumerate(subjects))


def _list(name: str, count: int) -> str:
    return ", ".join(f"%{name}{i}" for i in range(count))


def _load(f: KernelOperand, lanes: int) -> list[str]:
    size = f.bits // 8 * f.count
    index = "%at" if f.per_thread else "%block"
    lines = [f"ld.param.u64 %q, [{f.name}];", f"mad.wide.u32 %q, {index}, {size}, %q;"]
    return lines + [f"ld.global.b{f.bits} %{f.name}{i}, [%q+{f.bits // 8 * i}];" for i in range(f.count)]


def _copy(size: int, lanes: int, to_shared: bool, label: str) -> list[str]:
    """PTX that copies the block's image between global memory (%image) and the shared array `tile`, 16 bytes a thread."""
    words = "{%x0, %x1, %x2, %x3}"
    move = (
        [f"ld.global.v4.b32 {words}, [%q];", f"st.shared.v4.b32 [%s], {words};"]
        if to_shared
        else [f"ld.shared.v4.b32 {words}, [%s];", f"st.global.v4.b32 [%q], {words};"]
    )
    return [
        "shl.b32 %w, %t, 4;", "cvt.u64.u32 %q, %w;", "add.u64 %q, %q, %image;", "mov.u32 %s, tile;", "add.u32 %s, %s, %w;",
        f"{label}:", f"setp.lt.u32 %go, %w, {size};", f"@!%go bra {label}_end;", *move,
        f"add.u64 %q, %q, {16 * lanes};", f"add.u32 %s, %s, {16 * lanes};", f"add.u32 %w, %w, {16 * lanes};",
        f"bra {label};", f"{label}_end:",
    ]  # fmt: skip


def _operand(spec: OperandSpec, subject: Subject) -> str:
    if spec.kind == "registers":
        return "{" + _list(spec.key, spec.count) + "}"
    if spec.kind == "immediate":
        return str(subject.fixed[spec.key])
    if spec.kind == "predicate":
        return "%pred"
    if spec.kind == "address":
        return "[%address]"
    if spec.kind == "group":
        return "{" + ", ".join(str(subject.fixed[part.key]) for part in spec.parts) + "}"
    return f"%{spec.key}0"


def kernel(subject: Subject, name: str) -> str:
    """PTX of one kernel."""
    form, lanes, size = subject.form, subject.form.lanes, image_bytes(subject)
    ins, out = fields(subject), result(subject)
    shared = form.lanes > 32 or (size > 0 and (form.space or not form.effects.opaque) and form.space != "global")
    params = [f.name for f in ins] + (["image"] if size else []) + (["out"] if out else [])
    declared = [
        f".reg .b{f.bits} %{f.name}<{f.count}>;" for f in (*ins, *((out,) if out and out not in ins else ()))
    ] + [
        ".reg .b32 %at, %t, %block, %s, %w, %x<4>;", ".reg .b64 %q, %image, %address;", ".reg .pred %go, %pred;",
        *([f".shared .align 1024 .b8 tile[{size}];"] if shared else []),
    ]  # fmt: skip
    body = ["mov.u32 %block, %ctaid.x;", "mov.u32 %t, %tid.x;", f"mad.lo.u32 %at, %block, {lanes}, %t;"]
    for f in ins:
        body += _load(f, lanes)
    if size:
        body += ["ld.param.u64 %image, [image];", f"mad.wide.u32 %image, %block, {size}, %image;"]
    if shared:
        body += [*_copy(size, lanes, True, f"{name}_in"), "bar.sync 0;"]
    if any(s.kind == "address" for s in subject.specs):
        base = ["mov.u32 %s, tile;", "add.u32 %s, %s, %p0;", "cvt.u64.u32 %address, %s;"]
        flat = ["cvt.u64.u32 %address, %p0;", "add.u64 %address, %address, %image;"]
        body += base if shared else flat
        if shared and not form.space:  # a generic address
            body += ["cvta.shared.u64 %address, %address;"]
    if form.lanes > 32:
        body += ["fence.proxy.async;", "bar.sync 0;", "mov.u32 %s, tile;", "shr.u32 %s, %s, 4;", "cvt.u64.u32 %q, %s;"]
        body += [f"add.u64 %{f.name}0, %{f.name}0, %q;" for f in ins if f.name.endswith("_desc")]
        body += ["setp.ne.u32 %pred, %scale_d0, 0;", "wgmma.fence.sync.aligned;"]
    text = ", ".join(_operand(s, subject) for s in subject.specs)
    body.append(f"{form.mnemonic} {text};")
    if form.lanes > 32:
        body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    if out is not None:
        width = out.bits // 8
        body += ["ld.param.u64 %q, [out];", f"mad.wide.u32 %q, %at, {width * out.count}, %q;"]
        body += [f"st.global.b{out.bits} [%q+{width * i}], %{out.name}{i};" for i in range(out.count)]
    elif shared:
        body += ["bar.sync 0;", *_copy(size, lanes, False, f"{name}_out")]
    parameters = ", ".join(f".param .u64 {p}" for p in params)
    head = f".visible .entry {name}({parameters})\n.reqntid {lanes}, 1, 1\n"
    return head + "{\n" + "\n".join([*declared, *body]) + "\nret;\n}\n"
