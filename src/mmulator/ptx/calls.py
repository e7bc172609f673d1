"""Checks of call against the callee's prototype. Control Flow Instructions: call (PTX ISA 9.1)."""

from collections.abc import Iterator

from mmulator.isa.types import type_bits
from mmulator.ptx.operands import OperandContext, OperandProblem, describe
from mmulator.ptx.tree import ArgumentList, Immediate, Operand, Parameter, Reg, Sink, Symbol


def _prototype(context: OperandContext) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]] | OperandProblem:
    """(returns, parameters) of the callee, or an OperandProblem if it has no prototype."""
    callee = context.instruction.operands[1]
    if isinstance(callee, Symbol) and callee.space == "func":
        function = context.module.function(callee.name)
        if function is None:
            return OperandProblem(f"{callee.name} is not declared", callee.span)
        if function.is_entry and context.module.target.number < 35:
            return OperandProblem(f"{callee.name} is a kernel: call takes a .func", callee.span)
        return function.returns, function.params
    if isinstance(callee, Symbol) and not callee.space:
        return OperandProblem(f"the function {callee.name} is not declared", callee.span, "declare it with .extern .func")
    if isinstance(callee, Reg):
        if len(context.instruction.operands) < 4:
            return OperandProblem("an indirect call needs a prototype", callee.span, "name a .callprototype as last operand")
        name = context.instruction.operands[3]
        if not isinstance(name, Symbol) or name.space != "prototype":
            return OperandProblem("the last operand of an indirect call names a .callprototype", name.span)
        prototype = context.function.prototypes.get(name.name)
        if prototype is not None:
            return prototype.returns, prototype.params
        targets = context.function.targets[name.name].targets
        function = context.module.function(targets[0].name) if targets else None
        if function is None:
            return OperandProblem(f"{name.name} names no function", name.span)
        return function.returns, function.params
    return OperandProblem(f"call takes the name of a function, or a register, not {describe(callee)}", callee.span)


def check_call(context: OperandContext) -> Iterator[OperandProblem]:
    """Problems of a call: the callee must exist, and results and arguments must agree with its prototype in number and size."""
    found = _prototype(context)
    if isinstance(found, OperandProblem):
        yield found
        return
    returns, params = found
    results, _, arguments = context.instruction.operands[:3]
    for written, wanted, what in ((results, returns, "results"), (arguments, params, "arguments")):
        if not isinstance(written, ArgumentList):
            yield OperandProblem(f"the {what} of call stand in parentheses", written.span)
            continue
        variadic = bool(wanted) and wanted[-1].shape[:1] == (0,)
        if len(written.elements) != len(wanted) and not variadic:
            yield OperandProblem(
                f"{len(written.elements)} {what}; the prototype has {len(wanted)}",
                written.span if written.elements else context.instruction.span,
            )
            continue
        for element, parameter in zip(written.elements, wanted):
            yield from _argument(element, parameter, context)


def _argument(element: Operand, parameter: Parameter, context: OperandContext) -> Iterator[OperandProblem]:
    if isinstance(element, Reg):
        size = type_bits(element.type) // 8
    elif isinstance(element, Symbol) and element.space == "param":
        variable = context.function.variable(element.name)
        own = (*context.function.params, *context.function.returns)
        declared = variable or next((p for p in own if p.name == element.name), None)
        size = declared.size if declared else parameter.size
    elif isinstance(element, Immediate | Sink):
        return
    elif isinstance(element, Symbol) and not element.space:
        yield OperandProblem(f"{element.name} is not declared", element.span)
        return
    else:
        yield OperandProblem(f"an argument is a .param variable, a register or a constant, not {describe(element)}", element.span)
        return
    if size != parameter.size and parameter.type != "pred" and parameter.shape[:1] != (0,):
        yield OperandProblem(f"{element.span.text} has {size} bytes; the prototype has {parameter.size}", element.span)
