"""Text to paste: a PTX statement with its declarations, and a CUDA C++ function around it, made from the operands."""

from collections.abc import Iterator
from dataclasses import dataclass

from mmulator.isa.effects import MemoryEffect
from mmulator.isa.form import Form
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import Target
from mmulator.isa.wmma import ALIGNED

_WIDTH = 76

# Default values of immediates: no sign flipped, K-major, the lowest selector, wait for all.
_DEFAULTS = {"imm-scale-a": 1, "imm-scale-b": 1}
WGMMA_BEFORE = ("wgmma.fence.sync.aligned;",)
WGMMA_AFTER = ("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;")


def signatures(form: Form) -> tuple[tuple[str, tuple[OperandSpec, ...]], ...]:
    """(title, operands) of every way to write a form; the title is empty if there is one way."""
    if form.op == "mma_async":
        return tuple(zip(("A in shared memory", "A in registers"), form.signatures))
    return (("", form.signatures[-1]),)  # wmma.load and wmma.store: with the stride


def _value(spec: OperandSpec) -> int:
    return _DEFAULTS.get(spec.name, 0)


def wrapped(parts: list[str], indent: str, separator: str = ", ", width: int = _WIDTH) -> list[str]:
    """Texts on as few lines as fit, with separators between them."""
    lines, line = [], indent
    for i, part in enumerate(parts):
        text = part + (separator if i + 1 < len(parts) else "")
        if line.strip() and len(line) + len(text.rstrip()) > width:
            lines.append(line.rstrip())
            line = indent
        line += text
    return [*lines, line.rstrip()]


# PTX -----------------------------------------------------------------------------------------------------------------
def _declaration(spec: OperandSpec) -> str:
    """The `.reg` line of an operand; empty for one without registers of its own."""
    match spec.kind:
        case "registers":
            return f".reg .{spec.type} %{spec.key}<{spec.count}>;"
        case "register" | "descriptor" | "predicate" | "integer":
            return f".reg .{spec.type} %{spec.key};"
        case "address":
            return f".reg .b64 %{spec.key};"
    return ""


def _operand(spec: OperandSpec) -> list[str]:
    """Text of an operand, in pieces between which a line may end."""
    match spec.kind:
        case "registers":
            names = [f"%{spec.key}{i}" for i in range(spec.count)]
            return [("{" if i == 0 else "") + n + ("}" if i == spec.count - 1 else "") for i, n in enumerate(names)]
        case "address":
            return [f"[%{spec.key}]"]
        case "immediate":
            return [str(_value(spec))]
        case "group":
            return ["{" + ", ".join(str(_value(p)) for p in spec.parts) + "}"]
    return [f"%{spec.key}"]


def _statement(form: Form, operands: tuple[OperandSpec, ...]) -> list[str]:
    name = form.mnemonic
    if not operands:
        return [f"{name};"]
    lines = [name]
    for i, spec in enumerate(operands):
        pieces = _operand(spec)
        last = ";" if i + 1 == len(operands) else ","
        if spec.kind == "registers" or i == 0:
            lines += wrapped([*pieces[:-1], pieces[-1] + last], "    ")
        elif operands[i - 1].kind != "registers" and len(lines[-1]) + len(pieces[0]) < _WIDTH - 2:
            lines[-1] += f" {pieces[0]}{last}"
        else:
            lines.append(f"    {pieces[0]}{last}")
    if len(lines) == 2 and len(lines[0]) + len(lines[1]) < _WIDTH:
        return [f"{lines[0]} {lines[1].strip()}"]
    return lines


def ptx_text(form: Form, way: int = 0) -> str:
    """Declarations and statement, for wgmma between the instructions that order it. way: which of `signatures`."""
    operands = signatures(form)[way][1]
    lines = [d for spec in operands if (d := _declaration(spec))]
    ordered = form.op == "mma_async"
    lines += [*(WGMMA_BEFORE if ordered else ()), *_statement(form, operands), *(WGMMA_AFTER if ordered else ())]
    return "\n".join(lines) + "\n"


def paste_target(form: Form, target: Target | None = None) -> tuple[Target, tuple[int, int]]:
    """The `.target` (the lowest that has the form, if none is given) and the first `.version` that has it there."""
    chosen = target or form.requires.targets()[0]
    first = form.requires.first_ptx(chosen)
    return chosen, max(first, ALIGNED.since) if form.effects.opaque else first


# CUDA ----------------------------------------------------------------------------------------------------------------
# Register type -> C++ type and constraint letter.
_CUDA = {
    "f32": ("float", "f"), "f64": ("double", "d"), "s32": ("int32_t", "r"), "b64": ("uint64_t", "l"),
    "b32": ("uint32_t", "r"), "f16x2": ("uint32_t", "r"),
}  # fmt: skip
CUDA_13_SINCE = 75  # the lowest number of a target that CUDA 13 compiles for
_CUDA_12_ONLY = 101  # sm_110 since CUDA 13
_POINTER = {"shared": "__cvta_generic_to_shared", "shared::cta": "__cvta_generic_to_shared", "global": "__cvta_generic_to_global"}


@dataclass
class _Argument:
    """A parameter of the function, and what the asm statement gets of it."""

    parameter: str
    constraint: str
    expressions: list[str]
    template: bool = False


def function_name(form: Form) -> str:
    """Name of the function around a form: `mma_m16n8k16_row_col_f32_f16_f16_f32`, the mnemonic without what every instruction
    has.
    """
    name = form.mnemonic.replace(".sync", "").replace(".aligned", "")
    return name.replace("::", "_").replace(".", "_")


def _argument(spec: OperandSpec, form: Form) -> _Argument:
    key = spec.key
    match spec.kind:
        case "registers":
            c_type, letter = _CUDA[spec.type]
            const = " const" if spec.access == "r" else ""
            mark = {"r": "", "w": "=", "rw": "+"}[spec.access]
            return _Argument(f"{c_type}{const} (&{key})[{spec.count}]", mark + letter, [f"{key}[{i}]" for i in range(spec.count)])
        case "register":
            c_type, letter = _CUDA[spec.type]
            if spec.access == "r":
                return _Argument(f"{c_type} {key}", letter, [key])
            return _Argument(f"{c_type} &{key}", "=" + letter, [key])
        case "descriptor":
            return _Argument(f"uint64_t {key}", "l", [key])
        case "predicate":
            return _Argument(f"bool {key}", "r", [f"static_cast<int32_t>({key})"])
        case "address":
            const = " const" if spec.access == "r" and not _stores(form) else ""
            convert = _POINTER.get(form.space)
            if convert is None:
                return _Argument(f"void{const} *{key}", "l", [key])
            if form.space == "global":
                return _Argument(f"void{const} *{key}", "l", [f"{convert}({key})"])
            return _Argument(f"void{const} *{key}", "r", [f"static_cast<uint32_t>({convert}({key}))"])
        case "integer" if spec.name == "stride":
            return _Argument(f"uint32_t {key}", "r", [key])
    return _Argument(f"int {key} = {_value(spec)}", "n", [key], template=True)


def _stores(form: Form) -> bool:
    return form.effects.memory is MemoryEffect.WRITE


def touches_memory(form: Form) -> bool:
    """Whether the compiler must know that the statement reads or writes memory, or must stay in order."""
    return form.lanes > 32 or form.effects.memory is not MemoryEffect.NONE


def _flat(operands: tuple[OperandSpec, ...]) -> Iterator[OperandSpec]:
    for spec in operands:
        yield from spec.parts or (spec,)


def _function(form: Form, operands: tuple[OperandSpec, ...]) -> str:
    specs = [*_flat(operands)]
    arguments = {s.key: _argument(s, form) for s in specs}
    order = sorted(specs, key=lambda s: s.access == "r")  # outputs are numbered first
    numbers: dict[str, list[str]] = {}
    count = 0
    for spec in order:
        size = len(arguments[spec.key].expressions)
        numbers[spec.key] = [f"%{i}" for i in range(count, count + size)]
        count += size

    def text(spec: OperandSpec) -> list[str]:
        own = numbers.get(spec.key, [])
        match spec.kind:
            case "registers":
                return [("{" if i == 0 else "") + n + ("}" if i == len(own) - 1 else "") for i, n in enumerate(own)]
            case "address":
                return [f"[{own[0]}]"]
            case "predicate":
                return ["p"]
            case "group":
                return ["{" + ", ".join(numbers[p.key][0] for p in spec.parts) + "}"]
        return own

    template = [a.parameter for a in arguments.values() if a.template]
    parameters = [a.parameter for a in arguments.values() if not a.template]
    lines = wrapped([*template[:-1], template[-1] + ">"], "") if template else []
    if template:
        lines = [f"{'    ' if i else 'template <'}{line}" for i, line in enumerate(lines)]
    head = f"__device__ inline void {function_name(form)}("
    one = head + ", ".join(parameters) + ") {"
    lines += [one] if len(one) <= _WIDTH else [head, *wrapped(parameters, "    "), ") {"]
    lines.append("    asm volatile(")
    predicate = next((s for s in specs if s.kind == "predicate"), None)
    if predicate is not None:
        lines += ['        "{\\n"', '        ".reg .pred p;\\n"', f'        "setp.ne.b32 p, {numbers[predicate.key][0]}, 0;\\n"']
    pieces = [piece for spec in operands for piece in text(spec)]
    name = form.mnemonic
    body = wrapped(pieces, "", width=_WIDTH - 12) if pieces else []
    for i, line in enumerate([name + (" " if body else ";"), *body]):
        ending = ";" if body and i == len(body) else ""
        space = " " if 0 < i < len(body) else ""
        newline = "\\n" if i == len(body) else ""
        lines.append(f'        "{line}{space}{ending}{newline}"')
    if predicate is not None:
        lines.append('        "}\\n"')
    outs = [s for s in order if s.access != "r"]
    ins = [s for s in order if s.access == "r"]
    clobber = [': "memory"'] if touches_memory(form) else []
    for members, needed in ((outs, ins or clobber), (ins, clobber)):
        given = [f'"{arguments[s.key].constraint}"({e})' for s in members for e in arguments[s.key].expressions]
        if given:
            starts = ("        : ", *["          "] * len(given))
            lines += [start + line for start, line in zip(starts, wrapped(given, "", width=_WIDTH - 10))]
        elif needed:
            lines.append("        :")
    lines += [f"        {c}" for c in clobber]
    lines[-1] += ");"
    return "\n".join([*lines, "}"]) + "\n"


def cuda_text(form: Form, way: int = 0) -> str:
    """A `__device__` function around the statement."""
    return _function(form, signatures(form)[way][1])


def nvcc_options(form: Form, target: Target | None = None) -> str:
    """Options of nvcc for the function: for the given target, or the lowest that has the form and that CUDA 13 knows."""
    chosen = paste_target(form, target)[0]
    if target is None:
        chosen = next((t for t in form.requires.targets() if t.number >= CUDA_13_SINCE), chosen)
    old = " (CUDA 12)" if chosen.number < CUDA_13_SINCE or chosen.number == _CUDA_12_ONLY else ""
    if chosen.suffix:  # -arch=sm_90a would embed PTX of compute_90 too, which has no such instruction
        return f"-gencode arch=compute_{chosen.number}{chosen.suffix},code={chosen}{old}"
    return f"-arch={chosen}{old}"


def cuda_head(form: Form, target: Target | None = None) -> str:
    """Lines before the functions."""
    around = "// The caller's: wgmma.fence before, commit_group and wait_group after calls.\n" if form.op == "mma_async" else ""
    return f"#include <cstdint>  // nvcc {nvcc_options(form, target)}\n{around}"
