"""The effect of matrix instructions on registers and memory images: fragments in, arithmetic, fragments out.

Each family has a file. `execute` checks that the given operands are those of the instruction, and calls the family's function.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module

from mmulator.base.errors import OperandError, UnsupportedError
from mmulator.isa.chips import as_device
from mmulator.isa.effects import Step
from mmulator.isa.form import Form
from mmulator.isa.matrix import FILES
from mmulator.isa.row import OperandSpec
from mmulator.isa.targets import DEVICES, Target, default_device
from mmulator.matrix.instruction.operands import Array, Operands

_WGMMA_DEFAULTS: Operands = {
    "shared_base": 0, "scale_d": 1, "imm_scale_a": 1, "imm_scale_b": 1, "imm_trans_a": 0, "imm_trans_b": 0,
    "a": None, "a_desc": None, "d": None,
}  # fmt: skip
_DEFAULTS: dict[str, Operands] = {"wgmma": _WGMMA_DEFAULTS, "wmma": {"stride": None}}


@lru_cache(maxsize=1024)
def keywords(form: Form) -> tuple[str, ...]:
    """Keywords that `execute` takes for a form: the operands that it reads, and the memory to which they point. A form whose
    operands lie in tensor memory has none.
    """
    if not form.is_matrix:
        return ()
    return tuple(dict.fromkeys(key for signature in reversed(form.signatures) for spec in signature for key in _keys(spec)))


def _keys(spec: OperandSpec) -> Iterator[str]:
    match spec.kind:
        case "group":
            for part in spec.parts:
                yield from _keys(part)
        case "address":
            yield from ("memory", spec.key)
        case "descriptor":
            yield from (spec.key, "shared", "shared_base")
        case _ if spec.access != "w":
            yield spec.key


def execute(form: Form, device: str, operands: Operands, *, strict: bool = True) -> Array:
    """Run one instruction; see `Instruction.execute`."""
    run = _function(form)
    known = keywords(form)
    defaults = _DEFAULTS.get(form.family, {})
    for name in operands:
        if name not in known:
            raise OperandError(f"{form} has no operand {name}", hint=f"operands: {', '.join(known)}")
    for name in known:
        if name not in operands and name not in defaults:
            raise OperandError(f"operand {name} is missing", hint=f"operands of {form}: {', '.join(known)}")
    device = check_device(form, device)
    given = {name: operands.get(name, defaults.get(name)) for name in known}
    return run(form, device, given | {"strict": strict})


def default_chip(form: Form, target: Target | None) -> str:
    """The device of a product without one: sm_90, but for tcgen05 the chip of its target, or else the first that has it."""
    if form.is_matrix:
        return "sm_90"
    own, having = default_device(target) if target else "", devices_with(form)
    return own if own in having else having[0]


def check_device(form: Form, device: str) -> str:
    """The device's name, such as `sm_90`. Raises UnsupportedError for an unknown device, or if no target for the device has the
    instruction.
    """
    return _check_device(form, device if isinstance(device, str) else as_device(device))


@lru_cache(maxsize=1024)
def _check_device(form: Form, given: str) -> str:
    device, having, requires = as_device(given), devices_with(form), form.row.requires
    if device not in having:
        raise UnsupportedError(
            f"{device} has no {form}",
            rule=f"{form.section}, Target ISA Notes: requires {requires.describe_targets()}",
            hint=f"devices that have it: {', '.join(having)}" if having else None,
        )
    return device


def devices_with(form: Form) -> list[str]:
    """The devices that have a form."""
    return [d for d in DEVICES if any(target.runs_on(d) for target in form.row.requires.targets())]


@lru_cache(maxsize=1024)
def _function(form: Form) -> Callable[[Form, str, Operands], Array]:
    """The function with the name of the operation (`mma_async`, `load`), from the file of this folder with the name of the
    family; of moves between registers there is one function.
    """
    if not form.is_matrix:
        raise UnsupportedError(f"{form} has operands in tensor memory", hint="`compute` takes matrices, or run a kernel")
    if form.effects.step in (Step.FENCE, Step.COMMIT, Step.WAIT):
        raise UnsupportedError(f"{form} orders other instructions and has no result", hint="run a kernel that contains it")
    name = "between_registers" if form.row.moves else form.op.partition(".")[0]
    return getattr(import_module(f"mmulator.matrix.instruction.{FILES[form.family]}"), name)
