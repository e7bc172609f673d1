"""PTX text to a `ParsedModule`. PTX Module Directives, Kernel Entry and Function Directives (PTX ISA 9.1)."""

from types import MappingProxyType
from typing import cast

from mmulator.base.codegen.locks import remaining
from mmulator.base.demangle import demangle
from mmulator.base.location import Mark
from mmulator.base.source import Source
from mmulator.isa.targets import PTX_VERSIONS, Target
from mmulator.ptx import declarations
from mmulator.ptx.body import Body, NameInScope
from mmulator.ptx.cursor import Cursor
from mmulator.ptx.declarations import DIRECTIVES, skip_debug
from mmulator.ptx.lexer import tokenize
from mmulator.ptx.tree import Function, Linkage, ParsedModule, Variable

_LINKAGE = frozenset((".visible", ".extern", ".weak", ".common"))


def parse_module(source: Source) -> ParsedModule:
    """The tree of a PTX module, not yet verified: an illegal instruction has a `NoForm` instead of its form.

    Raises PtxSyntaxError, and nothing else, if the text cannot be read.
    """
    return _Parser(Cursor(tokenize(source))).module()


class _Parser:
    def __init__(self, c: Cursor) -> None:
        self.c = c
        self.names: dict[str, NameInScope] = {}
        self.variables: list[Variable] = []
        self.functions: list[Function] = []
        self.aliases: dict[str, str] = {}
        self.defined: set[str] = set()
        self.statics: set[str] = set()

    def module(self) -> ParsedModule:
        c = self.c
        c.tokens.source.lines.restart(demangle)
        version, target, options, address_size = self._header()
        while c.kinds[c.at] != "end":
            remaining()
            self._declaration()
        return ParsedModule(
            version, target, address_size, tuple(self.variables), tuple(self.functions), c.tokens.source, options,
            MappingProxyType(self.aliases),
        )  # fmt: skip

    def _header(self) -> tuple[tuple[int, int], Target, tuple[str, ...], int]:
        c = self.c
        if not c.accept_text(".version"):
            c.fail(f"expected .version, found {c.found()}", "a PTX module starts with, for example, .version 8.7")
        major, _, minor = c.expect("float", "a version such as 8.7").partition(".")
        try:
            version = int(major), int(minor)
        except ValueError:
            c.fail("expected a version such as 8.7", at=c.at - 1)
        if version not in PTX_VERSIONS:
            newest = ".".join(map(str, PTX_VERSIONS[-1]))
            c.fail(f"PTX version {major}.{minor} is not known", f"known are 6.0 to {newest}", c.at - 1)
        while c.texts[c.at] in (".file", ".loc"):
            skip_debug(c)
        if not c.accept_text(".target"):
            c.fail(f"expected .target, found {c.found()}", "for example .target sm_90a")
        try:
            target = Target.parse(c.name("a target"))
        except ValueError as error:
            raise c.error(str(error), at=c.at - 1) from None
        options: list[str] = []
        while c.accept(","):
            options.append(c.name("an option of .target"))
        address_size = 64
        if c.accept_text(".address_size"):
            address_size = c.integer("an address size")
            if address_size not in (32, 64):
                c.fail("an address has 32 or 64 bits", at=c.at - 1)
        return version, target, tuple(options), address_size

    def _declaration(self) -> None:
        c = self.c
        first = c.at
        linkage: Linkage = ""
        while c.texts[c.at] in _LINKAGE and c.kinds[c.at] == "dot":
            linkage = cast(Linkage, c.texts[c.at][1:])
            c.at += 1
        text = c.texts[c.at] if c.kinds[c.at] == "dot" else ""
        if text in (".entry", ".func"):
            self._function(linkage, first)
        elif text in declarations.VARIABLE_SPACES:
            if text in (".local", ".param"):
                c.fail(f"{text} variables are declared inside a function")
            for variable in declarations.variables(c, linkage, first):
                self._variable(variable, first)
        elif text in DIRECTIVES:
            skip_debug(c)
        elif text == ".alias":
            c.at += 1
            alias = c.name("a function")
            c.expect(",")
            self.aliases[alias] = c.name("a function")
            c.expect(";")
        elif text == ".pragma":
            c.at += 1
            while True:
                c.expect("string", "a string")
                if not c.accept(","):
                    break
            c.expect(";")
        elif not c.accept(";"):
            c.fail(f"expected a function or a variable, found {c.found()}")

    def _variable(self, variable: Variable, at: int) -> None:
        known = self.names.get(variable.name)
        defines = variable.linkage != "extern"
        if known is not None and (known.space == "func" or (defines and variable.name in self.defined)):
            self.c.fail(f"{variable.name} is declared twice", at=at)
        if defines:
            self.defined.add(variable.name)
        self.names[variable.name] = NameInScope(variable.name, variable.space, variable.type)
        self.variables.append(variable)

    def _function(self, linkage: Linkage, first: int) -> None:
        c = self.c
        is_entry = c.texts[c.at] == ".entry"
        c.tokens.source.lines.marks.append(Mark(c.tokens.starts[first]))  # the .loc of one function do not reach the next
        c.at += 1
        self._attribute()
        returns = () if is_entry else declarations.parameters(c)
        at = c.at
        name = c.name("the function's name")
        known = self.names.get(name)
        if known is not None and known.space != "func":
            c.fail(f"{name} is declared twice", at=at)
        self.names[name] = NameInScope(name, "func", "b64")
        params = declarations.parameters(c)
        directives = self._directives()
        defined = c.kinds[c.at] == "{"
        if not defined:
            c.expect(";", "'{' or ';'")
            head = c.span_from(first)
            empty: MappingProxyType[str, str] = MappingProxyType({})
            self.functions.append(
                Function(
                    name, is_entry, params, returns, empty, (), (), MappingProxyType({}), MappingProxyType({}),
                    MappingProxyType(directives), linkage, False, head,
                )
            )  # fmt: skip
            return
        if name in self.defined:
            c.fail(f"{name} is defined twice", at=at)
        self.defined.add(name)
        head = c.span_from(first)
        body = Body(c, self.names, (*returns, *params), name, self.statics)
        body.read()
        self.functions.append(
            Function(
                name, is_entry, params, returns, MappingProxyType(body.registers), tuple(body.statements),
                tuple(body.variables), MappingProxyType(body.prototypes), MappingProxyType(body.targets),
                MappingProxyType(directives), linkage, True, head,
            )
        )  # fmt: skip

    def _attribute(self) -> None:
        c = self.c
        if c.accept_text(".attribute"):
            c.expect("(")
            depth = 1
            while depth:
                kind = c.kinds[c.at]
                if kind == "end":
                    c.fail("expected ')'")
                depth += (kind == "(") - (kind == ")")
                c.at += 1

    def _directives(self) -> dict[str, tuple[int | str, ...]]:
        """Performance-tuning directives and .noreturn between the parameters and the body, as name -> arguments."""
        c = self.c
        found: dict[str, tuple[int | str, ...]] = {}
        while c.kinds[c.at] == "dot":
            name = c.texts[c.at][1:]
            if name == "attribute":
                self._attribute()
                continue
            if name in ("entry", "func", "visible", "extern", "weak"):
                break
            if name == "loc":
                skip_debug(c)
                continue
            c.at += 1
            if name == "pragma":
                found[name] = (*found.get(name, ()), c.expect("string", "a string").strip('"'))
                c.expect(";")
                continue
            values: list[int | str] = []
            if c.kinds[c.at] not in ("dot", "{", ";", "end"):
                while True:
                    values.append(c.size(f"an argument of .{name}"))
                    if not c.accept(","):
                        break
            found[name] = tuple(values)
        return found
