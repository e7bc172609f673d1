"""The parser of a function's body: statements, operands, and the scopes of names.

Statements, Instruction Operands (PTX ISA 9.1).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

from mmulator.base.codegen.locks import remaining
from mmulator.isa.match import match
from mmulator.ptx import declarations
from mmulator.ptx.cursor import Cursor
from mmulator.ptx.declarations import DIRECTIVES, skip_debug
from mmulator.ptx.tree import (
    Address,
    ArgumentList,
    Immediate,
    Instruction,
    Label,
    LabelRef,
    NegatedPredicate,
    Operand,
    Parameter,
    PredicatePair,
    Prototype,
    Reg,
    Sink,
    Space,
    SpecialRegister,
    Statement,
    Symbol,
    TargetList,
    Variable,
    VectorOperand,
)

MAX_REGISTERS = 1 << 20
MAX_MODIFIERS = 64
_MAX_SCOPES = 200
_COMPONENTS = {2: "xy", 4: "xyzw", 8: "01234567"}
_SELECTOR = re.compile("[bh][0-7]{1,4}")  # of a video instruction
_NUMBER = re.compile("0[xX][0-9a-fA-F]+|[1-9][0-9]*")
_LISTS = frozenset((".callprototype", ".branchtargets", ".calltargets"))
_ENDS = frozenset((",", ";"))  # behind an operand
_STATIC = frozenset(("shared", "global", "const"))


class NameInScope(NamedTuple):
    """A name in scope.

    name: unique name; empty until a register is used.
    space: state space, `reg` for registers.
    type: type of the register, or of an element of the variable.
    vector: number of elements in the vector type.
    """

    name: str
    space: Space
    type: str
    vector: int = 1


class _Scope(NamedTuple):
    names: dict[str, NameInScope]
    labels: dict[str, str]
    suffix: str


class Body:
    """Reader of one function body; the cursor is at its `{`.

    c: the cursor.
    outer: names of the module: functions and variables.
    params: parameters of the function.
    function: name of the function.
    statics: names of all variables of all functions with the lifetime of the module or the block. A variable whose name is
        already there gets a unique name.
    """

    def __init__(
        self, c: Cursor, outer: Mapping[str, NameInScope], params: tuple[Parameter, ...], function: str, statics: set[str]
    ) -> None:
        self.c = c
        self.outer = outer
        self.function = function
        self.statics = statics
        self.statements: list[Statement] = []
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.prototypes: dict[str, Prototype] = {}
        self.targets: dict[str, TargetList] = {}
        self._scopes: list[_Scope] = []
        self._count = 0
        self._used: int | None = None  # bytes that the next load uses
        self._lists: set[str] = set()  # labels that name a prototype or a list of targets
        self._labels = declarations.labels(c)
        self._open()
        for parameter in params:
            if parameter.name == "_":
                continue
            if parameter.space == "reg":
                self.registers[parameter.name] = parameter.type
            self._declare(NameInScope(parameter.name, parameter.space, parameter.type), c.at)

    # Scopes

    def _open(self) -> None:
        at = self.c.at
        self.c.expect("{")
        if len(self._scopes) >= _MAX_SCOPES:
            self.c.fail(f"more than {_MAX_SCOPES} nested scopes", at=at)
        suffix = f"@{self._count}" if self._count else ""
        self._count += 1
        labels = {name: name + suffix for name in self._labels[at]}
        self._lists.update(
            labels[name]
            for name, i in self._labels[at].items()
            if self.c.kinds[i + 2] == "dot" and self.c.texts[i + 2] in _LISTS
        )
        self._scopes.append(_Scope({}, labels, suffix))

    def _declare(self, known: NameInScope, at: int, written: str = "") -> None:
        scope = self._scopes[-1]
        name = written or (known.name.removesuffix(scope.suffix) if scope.suffix else known.name)
        if name in scope.names:
            self.c.fail(f"{name} is declared twice in this scope", at=at)
        scope.names[name] = known

    def _lookup(self, name: str) -> NameInScope | None:
        for scope in reversed(self._scopes):
            known = scope.names.get(name)
            if known is not None:
                if not known.name:  # a register that is named for the first time
                    known = scope.names[name] = NameInScope(name + scope.suffix, "reg", known.type, known.vector)
                return known
        return self.outer.get(name)

    def _label(self, name: str) -> str | None:
        for scope in reversed(self._scopes):
            label = scope.labels.get(name)
            if label is not None:
                return label
        return None

    # Statements

    def read(self) -> None:
        """Read up to and including the closing brace."""
        c = self.c
        kinds = c.kinds
        while self._scopes:
            remaining()
            kind = kinds[c.at]
            if kind == "word":
                if kinds[c.at + 1] == ":":
                    self._labelled()
                else:
                    self._instruction(None, c.at)
            elif kind == "@":
                self._guarded()
            elif kind == "dot":
                self._directive()
            elif kind == "{":
                self._open()
            elif kind == "}":
                self._scopes.pop()
                c.at += 1
            elif kind == ";":
                c.at += 1
            else:
                c.fail(f"expected an instruction, found {c.found()}")

    def _labelled(self) -> None:
        c = self.c
        at = c.at
        name = c.name("a label")
        unique = self._scopes[-1].labels.get(name, name)
        c.at += 1  # the colon
        directive = c.texts[c.at] if c.kinds[c.at] == "dot" else ""
        if directive == ".callprototype":
            c.at += 1
            returns = declarations.parameters(c)
            c.expect("word", "a name or _")
            params = declarations.parameters(c)
            while c.kinds[c.at] == "dot":  # .noreturn, .abi_preserve n
                c.at += 1
                c.accept("int")
            c.expect(";")
            self.prototypes[unique] = Prototype(unique, params, returns, c.span_from(at))
        elif directive in (".branchtargets", ".calltargets"):
            c.at += 1
            targets: list[LabelRef | Symbol] = []
            while True:
                target = self._word_operand()
                if not isinstance(target, LabelRef | Symbol):
                    c.fail(f"expected a {'label' if directive == '.branchtargets' else 'function'}", at=c.at - 1)
                targets.append(target)
                if not c.accept(","):
                    break
            c.expect(";")
            self.targets[unique] = TargetList(unique, tuple(targets), c.span_from(at))
        else:
            self.statements.append(Label(unique, c.tokens.span(at)))

    def _directive(self) -> None:
        c = self.c
        first, text = c.at, c.texts[c.at]
        if text in DIRECTIVES:
            skip_debug(c)
        elif text == ".reg":
            c.at += 1
            self._registers()
        elif text in declarations.VARIABLE_SPACES:
            for variable in declarations.variables(c, "", first):
                self._variable(variable, first)
        elif text == ".pragma":
            c.at += 1
            while True:
                words = c.expect("string", "a string").strip('"').split()
                if len(words) == 2 and words[0] == "used_bytes_mask" and _NUMBER.fullmatch(words[1]):
                    self._used = int(words[1], 0)
                if not c.accept(","):
                    break
            c.expect(";")
        else:
            c.fail(f"{text!r} cannot stand in a function's body")

    def _registers(self) -> None:
        scope = self._scopes[-1]
        head, declared = declarations.registers(self.c, MAX_REGISTERS - len(self.registers))
        type, vector = head.type, head.vector
        for names, at in declared:
            if not scope.names.keys().isdisjoint(names):
                twice = next(n for n in names if n in scope.names)
                self.c.fail(f"{twice} is declared twice in this scope", at=at)
            unique = [name + scope.suffix for name in names] if scope.suffix else names
            scope.names.update(zip(names, repeat(NameInScope("", "reg", type, vector))))
            if vector == 1:
                self.registers.update(zip(unique, repeat(type)))
            else:
                self.registers.update((f"{name}.{x}", type) for name in unique for x in _COMPONENTS[vector])

    def _variable(self, v: Variable, at: int) -> None:
        unique = v.name + self._scopes[-1].suffix
        if v.space in _STATIC and v.linkage != "extern":
            if unique in self.statics or unique in self.outer:
                unique += f"@{self.function}"
            self.statics.add(unique)
        self._declare(NameInScope(unique, v.space, v.type), at, v.name)
        self.variables.append(replace(v, name=unique))

    # Instructions

    def _guarded(self) -> None:
        c = self.c
        first = c.at
        c.at += 1
        negated = c.accept("!")
        at = c.at
        c.expect("word", "a predicate register")
        c.at = at
        register = self._word_operand()
        if not isinstance(register, Reg):
            c.fail("the guard is not a predicate register", "declare it with .reg .pred", at)
        if c.kinds[c.at] == ":":
            c.fail("a guard stands before an instruction, not before a label")
        self._instruction((register, negated), first)

    def _instruction(self, guard: tuple[Reg, bool] | None, first: int) -> None:
        c = self.c
        start = c.at
        opcode, *rest = c.expect("word", "an instruction").split(".")
        while c.kinds[c.at] == "dot":  # `add .s32` is legal, too
            rest += c.texts[c.at][1:].split(".")
            c.at += 1
        if len(rest) > MAX_MODIFIERS:
            c.fail(f"{opcode} has {len(rest)} modifiers; no instruction has as many", at=start)
        modifiers = tuple(rest)
        mnemonic_span = c.tokens.span(start) if c.at == start + 1 else c.span_from(start)
        operands: list[Operand] = []
        if c.kinds[c.at] != ";":
            if opcode == "call":
                operands = self._call_operands()
            else:
                kinds, texts = c.kinds, c.texts
                while True:
                    at = c.at
                    known = self._lookup(texts[at]) if kinds[at] == "word" and kinds[at + 1] in _ENDS else None
                    if known is not None and known.space == "reg" and known.vector == 1 and texts[at] != "WARP_SZ":
                        operands.append(Reg(known.name, known.type, c.tokens.span(at)))  # as nearly all are
                        c.at = at + 1
                    else:
                        operands.append(self._operand())
                    if kinds[c.at] != ",":
                        break
                    c.at += 1
                last = operands[-1]
                if opcode == "mov" and isinstance(last, Address) and isinstance(last.base, Symbol) and c.kinds[at] != "[":
                    operands[-1] = Symbol(last.base.name, last.offset, last.base.space, last.span)  # the address of a[3]
        if c.kinds[c.at] != ";":
            c.fail(f"expected ',' or ';', found {c.found()}", "an instruction ends with a semicolon")
        c.at += 1
        spans, found = (c.span_from(first), mnemonic_span), match(opcode, modifiers)
        self.statements.append(Instruction(opcode, modifiers, found, tuple(operands), guard, *spans, None, self._used))
        self._used = None

    def _call_operands(self) -> list[Operand]:
        """Operands of `call (ret), name, (args), prototype;`. The tree always has Arguments for results and for arguments, even
        if the text has none.
        """
        c = self.c
        empty = ArgumentList((), c.tokens.span(c.at))
        results = empty
        if c.kinds[c.at] == "(":
            results = self._arguments()
            c.expect(",")
        operands: list[Operand] = [results, self._word_operand()]
        arguments = empty
        if c.accept(","):
            if c.kinds[c.at] == "(":
                arguments = self._arguments()
                if c.accept(","):
                    return [*operands, arguments, self._word_operand()]
            else:
                return [*operands, arguments, self._word_operand()]
        return [*operands, arguments]

    def _arguments(self) -> ArgumentList:
        c = self.c
        first = c.at
        c.expect("(")
        found: list[Operand] = []
        if c.kinds[c.at] != ")":
            while True:
                found.append(self._operand())
                if not c.accept(","):
                    break
        c.expect(")", "',' or ')'")
        return ArgumentList(tuple(found), c.span_from(first))

    def _operand(self) -> Operand:
        c = self.c
        kind = c.kinds[c.at]
        if kind == "word" and c.texts[c.at] != "WARP_SZ":
            return self._word_operand()
        if kind == "[":
            return self._address()
        first = c.at
        if kind == "{":
            return self._vector()
        if kind == "!" and c.kinds[c.at + 1] == "word":
            c.at += 1
            register = self._word_operand()
            if not isinstance(register, Reg):
                c.fail("'!' stands before a predicate register", at=first)
            return NegatedPredicate(register, c.span_from(first))
        if kind == "-" and c.kinds[c.at + 1] == "word" and c.texts[c.at + 1] != "WARP_SZ":
            c.at += 1
            register = self._word_operand(pair=False)
            if not isinstance(register, Reg):
                c.fail("'-' stands before a constant, or before a register of vmad", at=first)
            return replace(register, negated=True, span=c.span_from(first))
        constant = c.constant()
        return Immediate(constant.value, constant.literal, c.span_from(first))

    def _word_operand(self, pair: bool = True) -> Operand:
        """The operand that a name denotes. pair: whether `|` and a second predicate may follow."""
        c = self.c
        at = c.at
        text = c.expect("word", "a name")
        span = c.tokens.span(at)
        known = self._lookup(text)
        operand: Operand
        if known is None:
            operand = self._unknown(text, at)
        elif known.space == "reg":
            if known.vector > 1:
                names = [f"{known.name}.{x}" for x in _COMPONENTS[known.vector]]
                return VectorOperand(tuple(Reg(n, known.type, span) for n in names), span)
            operand = Reg(known.name, known.type, span)
        else:
            return self._symbol(known, at)
        if pair and c.kinds[c.at] == "|" and isinstance(operand, Reg | Sink):
            c.at += 1
            other = self._word_operand(pair=False)
            if not isinstance(other, Reg | Sink):
                c.fail("a predicate register stands after '|'", at=c.at - 1)
            return PredicatePair(operand, other, c.span_from(at))
        return operand

    def _unknown(self, text: str, at: int) -> Operand:
        """The operand for a word that no scope declares: a sink, special register, label or component of a register; otherwise
        an undeclared Symbol.
        """
        span = self.c.tokens.span(at)
        if text == "_":
            return Sink(span)
        label = self._label(text)
        if label is not None:
            return Symbol(label, 0, "prototype", span) if label in self._lists else LabelRef(label, span)
        stem, _, component = text.rpartition(".")
        known = self._lookup(stem) if stem else None
        if known is not None and known.space == "reg":
            if known.vector > 1:
                index = "xyzw".find(component) if component in "xyzw" else "rgba".find(component)
                if 0 <= index < known.vector:
                    return Reg(f"{known.name}.{_COMPONENTS[known.vector][index]}", known.type, span)
            elif _SELECTOR.fullmatch(component):
                return Reg(known.name, known.type, span, component)
        if text[0] == "%":
            return SpecialRegister(text[1:], span)
        return Symbol(text, 0, "", span)

    def _symbol(self, known: NameInScope, at: int) -> Operand:
        c = self.c
        if c.kinds[c.at] == "[":  # a[3] is [a + 3 * size]
            c.at += 1
            offset = c.integer("an index") * declarations.bytes_of(known.type)
            c.expect("]")
            span = c.span_from(at)
            return Address(Symbol(known.name, 0, known.space, span), offset, span)
        offset = self._offset()
        return Symbol(known.name, offset, known.space, c.span_from(at))

    def _offset(self) -> int:
        """The offset after a name, `+ 16` or `+ -4`, in bytes; 0 if there is none."""
        c = self.c
        if c.kinds[c.at] == "-":
            c.fail("an offset follows '+'", "write + -4, not - 4")
        return c.integer("an offset") if c.accept("+") else 0

    def _address(self) -> Address:
        c = self.c
        first = c.at
        c.at += 1
        base: Operand
        offset = 0
        if c.kinds[c.at] == "word" and c.texts[c.at] != "WARP_SZ":
            base = self._word_operand()
            if isinstance(base, Symbol):
                base, offset = Symbol(base.name, 0, base.space, base.span), base.offset
            elif not isinstance(base, Reg):
                c.fail("an address starts with a register, a variable or a constant", at=first + 1)
            offset += self._offset()
        else:
            at = c.at
            value = c.integer("an address")
            base = Immediate(value, "int", c.span_from(at))
        extra: list[Operand] = []
        while c.accept(","):
            if c.kinds[c.at] == "[":
                c.fail("an address cannot stand inside another one")
            extra.append(self._operand())
        c.expect("]")
        return Address(base, offset, c.span_from(first), tuple(extra))

    def _vector(self) -> VectorOperand:
        c = self.c
        first = c.at
        c.at += 1
        elements: list[Operand] = []
        while True:
            if c.kinds[c.at] in ("{", "["):
                c.fail("an element of a vector is a register, a constant or _")
            elements.append(self._operand())
            if not c.accept(","):
                break
        c.expect("}", "',' or '}'")
        return VectorOperand(tuple(elements), c.span_from(first))
