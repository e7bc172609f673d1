"""C++ names of the Itanium ABI, as nvcc, clang and Numba write them into PTX, in readable form.

Names of kernels, functions and variables are covered: namespaces, templates with types and literals, packs, function and array
types, local names, lambdas, ABI tags, substitutions. A name with anything else stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from mmulator.base.classes import dataclass

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...", "Dh": "half", "Dn": "decltype(nullptr)", "Di": "char32_t",
    "Ds": "char16_t", "Du": "char8_t", "DF16b": "std::bfloat16_t", "DF16_": "_Float16",
}  # fmt: skip
_SUFFIX = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}  # of literals; other types are written as casts
_STD = {
    "t": "std", "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream",
    "o": "std::ostream", "d": "std::iostream",
}  # fmt: skip
_OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~",
    "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=",
    "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>",
    "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "nt": "!",
    "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]",
}  # fmt: skip
_BETWEEN = ("pl", "mi", "ml", "dv", "rm", "an", "or", "eo", "ls", "rs", "eq", "ne", "lt", "gt", "le", "ge", "aa", "oo")
_SPECIAL = {"TV": "vtable", "TT": "VTT", "TI": "typeinfo", "TS": "typeinfo name"}
_NUMBA, _LOCAL = re.compile(r"\[abi:v\d+\]\[abi:c\w+\]"), re.compile(r"_3c(locals|lambda)_3e")  # tags; `<locals>` as it writes it
_DEEPEST = 200
_LONGEST = 1 << 15  # characters of a name, mangled or not, and of each part: substitutions can double it again and again
_ROOM = 1 << 22  # characters of all parts that substitutions can refer to


class _Unknown(Exception):
    """The name has something that this module does not read."""


@dataclass(frozen=True)
class _Type:
    """A type, in the two halves that stand around its declarator: `int (` and `)[4]`. declared: pointers to it need
    parentheses.
    """

    left: str
    right: str = ""
    declared: bool = False
    parts: tuple[_Type, ...] | None = None  # of a pack

    def __post_init__(self) -> None:
        if len(self.left) + len(self.right) > _LONGEST:
            raise _Unknown

    def __str__(self) -> str:
        if self.parts is not None:
            return _joined(map(str, self.parts))
        return self.left + self.right

    def pointer(self, mark: str) -> _Type:
        if mark in "&&" and self.left.endswith("&") and not self.declared:  # references collapse
            return self if mark == "&&" else _Type(self.left.rstrip("&") + "&", self.right)
        if self.declared:
            return _Type(f"{self.left} ({mark}", f"){self.right}")
        return _Type(self.left + mark, self.right)


def _joined(texts: Iterable[str]) -> str:
    """Texts with commas between them. Raises _Unknown where that gets too long."""
    found: list[str] = []
    room = _LONGEST
    for text in texts:
        room -= len(text) + 2
        if room < 0:
            raise _Unknown
        found.append(text)
    return ", ".join(found)


@dataclass
class _Name:
    """A demangled name.

    full: as a person writes it.
    base: without template arguments and tags.
    template: the last part has template arguments.
    special: a constructor, destructor or conversion, which has no return type.
    suffix: qualifiers of a member function.
    """

    full: str
    base: str
    template: bool = False
    special: bool = False
    suffix: str = ""
    last: str = ""


@dataclass
class _SymbolReader:
    text: str
    at: int = 0
    known: list[_Type] = field(default_factory=list)
    arguments: list[_Type] = field(default_factory=list)
    depth: int = 0
    room: int = _ROOM

    # letters ----------------------------------------------------------------------------------------------------
    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        found = self.peek(text)
        self.at += len(text) * found
        return found

    def need(self, text: str) -> None:
        if not self.take(text):
            raise _Unknown

    def match(self, pattern: str) -> str:
        found = re.compile(pattern).match(self.text, self.at)
        if not found:
            raise _Unknown
        self.at = found.end()
        return found[0]

    # names ------------------------------------------------------------------------------------------------------
    def encoding(self, returns: bool = True) -> _Name:
        """A name, with its parameters if it is a function's. returns: also with the type that it returns."""
        for code, what in _SPECIAL.items():
            if self.take(code):
                full = str(self.type())
                return _Name(f"{what} for {full}", _bare(full))
        name = self.name()
        if self.at >= len(self.text) or self.peek("E") or self.peek("."):
            return name
        result = self.type() if name.template and not name.special else None
        params = self.parameters("E.")
        full = f"{name.full}({params}){name.suffix}"
        if result is not None and returns:
            full = f"{result.left}{'' if result.left.endswith(('*', '&')) and result.right else ' '}{full}{result.right}"
        return _Name(str(_Type(full)), name.base, name.template, name.special, "", name.last)

    def parameters(self, ends: str) -> str:
        found = [self.type()]
        while self.at < len(self.text) and self.text[self.at] not in ends:
            found.append(self.type())
        texts = [str(t) for t in found if t.parts != ()]
        return "" if texts == ["void"] else _joined(texts)

    def name(self) -> _Name:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Unknown
        try:
            if self.take("N"):
                return self.nested()
            if self.take("Z"):
                return self.local()
            return self.plain()
        finally:
            self.depth -= 1

    def plain(self) -> _Name:
        if self.peek("S") and not self.peek("St"):  # a substitution with template arguments
            base = self.substitution()
            found = _Name(str(base), _bare(str(base)))
        else:
            std = "std::" if self.take("St") else ""
            text, special = self.unqualified("")
            found = _Name(std + text, std + _bare(text), special=special, last=_bare(text))
            if self.peek("I"):
                self.remember(_Type(found.full))
        if self.peek("I"):
            found = _Name(found.full + self.template_arguments(), found.base, True, found.special, "", found.last)
        return found

    def nested(self) -> _Name:
        qualifiers = "".join(f" {_CV[c]}" for c in reversed(self.match("[rVK]*")))
        suffix = qualifiers + (" &&" if self.take("O") else " &" if self.take("R") else "")
        full = base = last = ""
        template = special = False
        while not self.take("E"):
            if self.peek("I"):
                if not full:
                    raise _Unknown
                full += self.template_arguments()
                template = True
            elif self.peek("S") and not self.peek("St"):
                full = str(self.substitution())
                base, last = _bare(full), _bare(full).rpartition("::")[2]
                continue
            elif self.peek("T"):
                full = base = str(self.template_parameter())
            else:
                template = False
                std = not full and self.take("St")
                text, special = self.unqualified(last)
                joined = "std::" if std else f"{full}::" if full else ""
                full, base = joined + text, ("std::" if std else f"{base}::" if base else "") + _bare(text)
                last = last if special else _bare(text)
            if not self.peek("E"):
                self.remember(_Type(full))
        return _Name(full, base, template, special, suffix, last)

    def local(self) -> _Name:
        outside, self.depth = self.depth, 0  # template arguments of the function are those that its parameters name
        outer = self.encoding(False)
        self.depth = outside
        self.need("E")
        if self.take("s"):
            self.discriminator()
            return _Name(f"{outer.full}::string literal", outer.base)
        if self.take("d"):
            self.match(r"\d*_")
        inner = self.name()
        self.discriminator()
        return _Name(
            f"{outer.full}::{inner.full}", f"{outer.base}::{inner.base}", inner.template, inner.special, inner.suffix, inner.last
        )

    def discriminator(self) -> None:
        if self.peek("_"):
            self.match(r"__\d+_|_\d")

    def unqualified(self, owner: str) -> tuple[str, bool]:
        """A part of a name, and whether it is a constructor, destructor or conversion."""
        self.take("L")
        special = False
        if self.peek("C") or self.peek("D"):
            kind = self.match(r"[CD]\d")[0]
            text, special = ("~" * (kind == "D") + owner, True)
            if not owner:
                raise _Unknown
        elif re.compile(r"\d").match(self.text, self.at):
            text = self.source_name()
        elif self.peek("Ul") or self.peek("Ut"):
            text = self.unnamed()
        elif self.take("cv"):
            text, special = f"operator {self.type()}", True
        else:
            code = self.match("[a-z][a-zA-Z]")
            if code not in _OPERATORS:
                raise _Unknown
            text = f"operator{_OPERATORS[code]}"
        while self.take("B"):
            text += f"[abi:{self.source_name()}]"
        return text, special

    def source_name(self) -> str:
        length = int(self.match(r"\d{1,7}"))
        if self.at + length > len(self.text):
            raise _Unknown
        text = self.text[self.at : self.at + length]
        self.at += length
        return "(anonymous namespace)" if text.startswith("_GLOBAL__N_") else text

    def unnamed(self) -> str:
        if self.take("Ut"):
            return f"{{unnamed type#{self.number()}}}"
        self.need("Ul")
        params = self.parameters("E")
        self.need("E")
        return f"{{lambda({params})#{self.number()}}}"

    def number(self) -> int:
        """A number of the mangling: `_` is 1, `0_` is 2."""
        digits = self.match(r"\d{0,9}_")[:-1]
        return int(digits) + 2 if digits else 1

    # substitutions and templates ----------------------------------------------------------------------------------
    def sequence(self) -> int:
        """A sequence number, written in base 36: `_` is 0, `0_` is 1."""
        digits = self.match(r"[0-9A-Z]{0,6}_")[:-1]
        return int(digits, 36) + 1 if digits else 0

    def substitution(self) -> _Type:
        self.need("S")
        letter = self.text[self.at : self.at + 1]
        if letter in _STD and letter:
            self.at += 1
            return _Type(_STD[letter])
        number = self.sequence()
        if number >= len(self.known):
            raise _Unknown
        return self.known[number]

    def parameter(self) -> _Type:
        self.need("T")
        number = self.sequence()
        if number >= len(self.arguments):
            raise _Unknown
        return self.arguments[number]

    def template_parameter(self) -> _Type:
        return self.remember(self.parameter())

    def template_arguments(self) -> str:
        self.need("I")
        outer, found = self.arguments, []
        while not self.take("E"):
            found.append(self.argument())
        self.arguments = outer if self.depth > 1 else found
        texts = [str(t) for t in found if t.parts != ()]
        text = f"<{_joined(texts)}>"
        return text[:-1] + " >" if text.endswith(">>") else text

    def argument(self) -> _Type:
        if self.take("J"):
            parts = []
            while not self.take("E"):
                parts.append(self.argument())
            return _Type("", parts=tuple(parts))
        if self.take("X"):
            found = self.expression()
            self.need("E")
            return found
        return self.literal() if self.peek("L") else self.type()

    def expression(self) -> _Type:
        """A literal, a template parameter, an address, a size of a type, or an operator between two of these."""
        if self.peek("L"):
            return self.literal()
        self.take("sp")  # a pack in its place
        if self.peek("T"):
            return self.parameter()
        if self.take("st"):
            return _Type(f"sizeof ({self.type()})")
        if self.take("ad"):
            return _Type(f"&({self.literal()})")
        code = self.match("[a-z][a-zA-Z]")
        if code not in _BETWEEN:
            raise _Unknown
        text = f"({self.expression()}){_OPERATORS[code]}({self.expression()})"
        return _Type(f"({text})" if code == "gt" else text)

    def literal(self) -> _Type:
        self.need("L")
        if self.take("_Z"):
            found = self.encoding()
            self.need("E")
            return _Type(found.full)
        code = self.text[self.at]
        kind = self.type()
        if self.peek("E") and str(kind) == "decltype(nullptr)":
            self.at += 1
            return _Type("nullptr")
        if code in "fde":
            bits = self.match("[0-9a-f]+")
            self.need("E")
            return _Type(f"({kind})[{bits}]")
        value = self.match(r"n?\d+").replace("n", "-")
        self.need("E")
        if code == "b" and value in "01":
            return _Type("false" if value == "0" else "true")
        return _Type(value + _SUFFIX[code] if code in _SUFFIX else f"({kind}){value}")

    # types --------------------------------------------------------------------------------------------------------
    def type(self) -> _Type:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise _Unknown
        try:
            return self.any_type()
        finally:
            self.depth -= 1

    def any_type(self) -> _Type:
        for length in (1, 2, 5):
            code = self.text[self.at : self.at + length]
            if code in _BUILTIN and not (length == 1 and code in "D"):
                self.at += length
                return _Type(_BUILTIN[code])
        qualifiers = re.compile("[rVK]+").match(self.text, self.at)
        if qualifiers:
            self.at = qualifiers.end()
            inner = self.type()
            words = "".join(f" {_CV[c]}" for c in reversed(qualifiers[0]))
            found = _Type(inner.left, inner.right + words, True) if inner.declared else _Type(inner.left + words, inner.right)
            return self.remember(found)
        for code, mark in (("P", "*"), ("R", "&"), ("O", "&&")):
            if self.take(code):
                return self.remember(self.type().pointer(mark))
        if self.take("F"):
            self.take("Y")
            result = self.type()
            params = self.parameters("E")
            self.need("E")
            return self.remember(_Type(f"{result}", f"({params})", True))
        if self.take("A"):
            size = self.match(r"\d*") or ("" if self.peek("_") else str(self.expression()))
            self.need("_")
            inner = self.type()
            gap = "" if inner.right.startswith("[") else " "
            return self.remember(_Type(inner.left, f"{gap}[{size}]{inner.right.lstrip()}", True))
        if self.take("Dt") or self.take("DT"):
            found = _Type(f"decltype ({self.expression()})")
            self.need("E")
            return self.remember(found)
        if self.take("Dp"):
            pack = self.type()
            return pack if pack.parts is not None else _Type(f"{pack}...")
        if self.take("M"):
            owner, member = self.type(), self.type()
            if not member.declared:
                return self.remember(_Type(f"{member} {owner}::*"))
            return self.remember(_Type(f"{member.left} ({owner}::*", f"){member.right}"))
        return self.named_type()

    def named_type(self) -> _Type:
        if self.take("u"):
            return self.remember(_Type(self.source_name()))
        if self.peek("T"):
            base = self.template_parameter()
            return self.remember(_Type(f"{base}{self.template_arguments()}")) if self.peek("I") else base
        if self.peek("S") and not self.peek("St"):
            base = self.substitution()
            return self.remember(_Type(f"{base}{self.template_arguments()}")) if self.peek("I") else base
        return self.remember(_Type(self.name().full))

    def remember(self, found: _Type) -> _Type:
        self.room -= len(found.left) + len(found.right)
        if self.room < 0:
            raise _Unknown
        self.known.append(found)
        return found


_CV = {"r": "__restrict__", "V": "volatile", "K": "const"}


@lru_cache(maxsize=128)
def _bare(text: str) -> str:
    """A name without template arguments and tags, also of its last part."""
    out, depth = "", 0
    for letter in re.sub(r"\[abi:[^\]]*\]", "", text):
        depth += (letter == "<") - (letter == ">")
        if not depth and letter != ">":
            out += letter
    return out.strip()


@lru_cache(maxsize=4096)
def _read(name: str) -> tuple[str, str] | None:
    if not name.startswith("_Z") or len(name) > _LONGEST:
        return None
    reader = _SymbolReader(name, 2)
    try:
        found = reader.encoding()
    except (_Unknown, IndexError, RecursionError):
        return None
    if reader.at < len(name) and not reader.peek("."):
        return None
    if _NUMBA.search(found.full) and not found.base.startswith("NumbaEnv::"):
        said = _LOCAL.sub(r"<\1>", found.base.replace("::", ".")).removeprefix("__main__.")
        return said, said
    return found.full, found.base


def demangle(name: str) -> str:
    """The C++ name with template arguments and parameters: `void gemm<float>(__half const*, float*)`.

    Of a function of Numba it is the name in Python: `outer.<locals>.add`. A name that is not mangled, or that this module cannot
    read, stays as it is.
    """
    return (_read(name) or (name, name))[0]


def base_name(name: str) -> str:
    """The qualified C++ name alone: `ns::gemm`."""
    return (_read(name) or (name, name))[1]


def unmangled(text: str) -> str:
    """A message with C++ names as people write them; in brackets stay those that stand beside such a name already."""
    return re.sub(r"(?<![(\w])_Z\w+", lambda found: demangle(found[0]), text) if "_Z" in text else text
