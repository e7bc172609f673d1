"""Compares ptx/program/as_ptxas/contract.py with ptxas: random kernels, executed as PTX and as machine code on symbols.

    python -m evidence.study.contraction --seed 1 --count 500            # needs ptxas and nvdisasm
    python -m evidence.study.contraction --seed 1 --count 500 --shape loops --type f64

Each kernel computes on floating-point registers, with branches, loops and guards that depend on integers it loads. Both
sides run with floating-point values as expressions: a fused product is another expression than one that is rounded.
A mismatch prints the kernel and both expressions. Set PTXAS and NVDISASM to choose the programs.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evidence.study.machine_code import assemble
from mmulator.base.source import Source
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.as_ptxas.contract import contract
from mmulator.ptx.tree import Address, Function, Immediate, Label, LabelRef, Reg, Symbol

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"
INPUTS, TESTS, PARAMETERS = 8, 4, 2  # floating-point values and integers in memory, floating-point parameters
Term = Any  # a nested tuple: ("in", n), ("neg", x), ("add", x, y), ("mul", x, y), ("fma", product, z), ("bits", n)


# expressions, in one form each --------------------------------------------------------------------------------------
class Algebra:
    def __init__(self, type_name: str) -> None:
        self.sign = 1 << (31 if type_name == "f32" else 63)
        self.one = 0x3F800000 if type_name == "f32" else 0x3FF << 52

    def neg(self, x: Term) -> Term:
        if x[0] == "bits":
            return ("bits", x[1] ^ self.sign)
        return x[1] if x[0] == "neg" else ("neg", x)

    def abs(self, x: Term) -> Term:
        if x[0] == "bits":
            return ("bits", x[1] & ~self.sign)
        x = x[1] if x[0] == "neg" else x
        return x if x[0] == "abs" or (x[0] == "mul" and x[1] == x[2]) else ("abs", x)

    def mul(self, a: Term, b: Term) -> Term:
        for x, y in ((a, b), (b, a)):
            if x == ("bits", self.one):
                return y
            if x == ("bits", self.one | self.sign):
                return self.neg(y)
        negative = False
        factors = []
        for x in (a, b):
            if x[0] == "neg" or (x[0] == "bits" and x[1] & self.sign):
                x, negative = self.neg(x), not negative
            factors.append(x)
        product = ("mul", *sorted(factors, key=repr))
        return self.neg(product) if negative else product

    def add(self, a: Term, b: Term) -> Term:
        for x, y in ((a, b), (b, a)):
            if x == ("bits", self.sign):  # -0
                return y
        return ("add", *sorted((a, b), key=repr))

    def fma(self, a: Term, b: Term, c: Term) -> Term:
        product = self.mul(a, b)
        if c == ("bits", self.sign):
            return product
        if product[0] not in ("mul", "neg") or (product[0] == "neg" and product[1][0] != "mul"):
            return self.add(product, c)
        return ("fma", product, c)


def show(x: Term) -> str:
    match x:
        case ("in", n):
            return f"f{n}"
        case ("par", n):
            return f"p{n}"
        case ("bits", n):
            return f"{n:#x}"
        case ("neg", a):
            return f"-{show(a)}"
        case ("mul", a, b):
            return f"[{show(a)} * {show(b)}]"
        case ("add", a, b):
            return f"({show(a)} + {show(b)})"
        case ("fma", a, b):
            return f"<{show(a)} + {show(b)}>"
    return str(x)


# random kernels -----------------------------------------------------------------------------------------------------
class Writer:
    """A kernel that reads f0..f7, integers t0..t3 and two parameters, and stores its registers x0..x5."""

    def __init__(self, rng: random.Random, type_name: str, shape: str, ftz: str) -> None:
        self.rng, self.t, self.shape, self.ftz = rng, type_name, shape, ftz if type_name == "f32" else ""
        self.lines: list[str] = []
        self.labels = 0
        self.fresh = 0
        self.values = [f"%f{n}" for n in range(INPUTS)] + [f"%q{n}" for n in range(PARAMETERS)]
        self.variables: list[str] = []
        self.products: list[str] = []
        self.unread: set[str] = set()
        self.stores = 0

    def new(self) -> str:
        read = [v for v in self.variables if v not in self.unread]  # compilers leave no dead code
        if read and self.rng.random() < (0.1 if self.shape == "straight" else 0.25):
            name = self.rng.choice(read)
            if name in self.products:
                self.products.remove(name)
            return name
        name = f"%x{self.fresh}"
        self.fresh += 1
        return name

    def constant(self) -> str:
        x = self.rng.choice((1.0, -1.0, 2.0, 3.0, 0.3, -1.5, 0.0, 0.5))
        if self.t == "f32":
            return f"0f{struct.unpack('<I', struct.pack('<f', x))[0]:08x}"
        return f"0d{struct.unpack('<Q', struct.pack('<d', x))[0]:016x}"

    def pick(self, product: float = 0.5) -> str:
        live = [p for p in self.products if p in self.variables]
        if live and self.rng.random() < product:
            return self.rng.choice(live)
        return self.rng.choice(self.variables + self.values[: INPUTS if self.rng.random() < 0.8 else None])

    def arithmetic(self, guard: str = "") -> None:
        rng = self.rng
        kinds = ("mul", "add", "sub", "neg", "mov", "fma.rn", "mul.rn", "add.rn", "abs")
        kind = rng.choices(kinds, (8, 6, 5, 1, 1, 1, 0.5, 0.5, 0.3))[0]
        if guard and not self.variables:
            return
        if kind in ("mul", "mul.rn"):
            operands = [self.pick(0.1), self.constant() if rng.random() < 0.15 else self.pick(0.1)]
            rng.shuffle(operands)
            if operands[0][0] == "0":
                operands.reverse()
        elif kind in ("neg", "mov", "abs"):
            operands = [self.pick()]
        elif kind == "fma.rn":
            operands = [self.pick(0.2), self.pick(0.2), self.pick()]
        else:
            operands = [self.pick(), self.constant() if rng.random() < 0.05 else self.pick()]
        name = rng.choice(self.variables) if guard else self.new()
        self.unread -= set(operands)
        self.unread.add(name)
        ftz = self.ftz if kind != "mov" else ""
        self.lines.append(f"{guard}{kind}{ftz}.{self.t} {name}, {', '.join(operands)};")
        if name not in self.variables:
            self.variables.append(name)
        if kind == "mul" or (kind in ("neg", "mov") and operands[0] in self.products):
            if name not in self.products:
                self.products.append(name)
        elif name in self.products:
            self.products.remove(name)

    def store(self, name: str) -> str:
        self.stores += 1  # never the same address twice: ptxas drops a store that another overwrites
        return f"st.global.{self.t} [%out+{8 * self.stores}], {name};"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def test(self) -> str:
        return f"%p{self.rng.randrange(TESTS)}"

    def block(self, size: int, depth: int) -> None:
        rng = self.rng
        for _ in range(size):
            r = rng.random()
            if self.shape == "straight" or r < 0.8 or depth == 0:
                self.arithmetic()
            elif r < 0.84:
                self.arithmetic(f"@{rng.choice(('', '!'))}{self.test()} ")
            elif r < 0.88:
                self.lines.append(rng.choice((
                    "fence.acq_rel.gpu;", "bar.sync 0;", f"@{self.test()} st.global.b32 [%out], %i0;",
                    self.store(self.pick()),
                )))  # fmt: skip
            elif r < 0.95 or self.shape == "branches":
                self.branch(depth)
            else:
                self.loop(depth)

    def scoped(self, write: Callable[[], None]) -> None:
        """What a part of the program defines first is not known after it."""
        before = list(self.variables)
        write()
        last = [v for v in self.variables if v in self.unread and v not in before]
        self.lines += [self.store(v) for v in last]
        self.variables = [v for v in self.variables if v in before]

    def branch(self, depth: int) -> None:
        rng = self.rng
        over, end = self.label(), self.label()
        self.lines.append(f"@{rng.choice(('', '!'))}{self.test()} bra {over};")
        self.scoped(lambda: self.block(rng.randint(1, 5), depth - 1))
        if rng.random() < 0.4:
            self.lines += [f"bra {end};", f"{over}:"]
            self.scoped(lambda: self.block(rng.randint(1, 5), depth - 1))
            self.lines.append(f"{end}:")
        else:
            self.lines.append(f"{over}:")

    def loop(self, depth: int) -> None:
        rng = self.rng
        top, counter = self.label(), self.label().replace("L", "%c")
        self.lines += [f"mov.u32 {counter}, 0;", f"{top}:"]
        self.scoped(lambda: self.block(rng.randint(2, 7), depth - 1))
        self.lines += [f"add.u32 {counter}, {counter}, 1;", f"setp.lt.u32 %pl, {counter}, %i{rng.randrange(TESTS)};"]
        self.lines += ['.pragma "nounroll";'] * (self.shape != "unrolled") + [f"@%pl bra {top};"]

    def kernel(self, name: str, size: int) -> str:
        size_of = 4 if self.t == "f32" else 8
        for _ in range(2 if self.shape != "straight" else 0):
            self.arithmetic()
        self.block(size, 2)
        kept = [v for v in self.variables if v in self.unread or self.rng.random() < 0.2]
        head = [
            f".visible .entry {name}(.param .u64 a, .param .u64 b, .param .{self.t} c, .param .{self.t} d) {{",
            f".reg .{self.t} %f<{INPUTS}>, %q<{PARAMETERS}>, %x<{self.fresh + 1}>;",
            f".reg .pred %p<{TESTS}>, %pl; .reg .b32 %i<{TESTS}>, %c<{self.labels + 1}>; .reg .b64 %in, %out;",
            "ld.param.u64 %in, [a]; ld.param.u64 %out, [b];",
            f"ld.param.{self.t} %q0, [c]; ld.param.{self.t} %q1, [d];",
            "cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;",
            *(f"ld.global.{self.t} %f{n}, [%in+{n * size_of}];" for n in range(INPUTS)),
            *(f"ld.global.b32 %i{n}, [%in+{256 + 4 * n}]; setp.gt.u32 %p{n}, %i{n}, 2;" for n in range(TESTS)),
        ]
        tail = [self.store(v) for v in kept]
        return "\n".join([*head, *self.lines, *tail, "ret;", "}"]) + "\n"


# the PTX side -------------------------------------------------------------------------------------------------------
IN, OUT = 1 << 40, 1 << 41  # addresses of the two arrays


def run_ptx(function: Function, algebra: Algebra, tests: list[int], type_name: str) -> dict[int, Term]:
    """What a contracted kernel stores: offset -> expression."""
    size = 4 if type_name == "f32" else 8
    registers: dict[str, Any] = {}
    stored: dict[int, Term] = {}
    labels = function.labels
    at = 0

    def value(o: Any, kind: str = "b32") -> Any:
        if isinstance(o, Reg):
            return registers[o.name]
        assert isinstance(o, Immediate)
        return ("bits", o.bits(type_name)) if kind == type_name else o.bits(kind)

    for _ in range(20000):
        if at >= len(function.body):
            break
        ins = function.body[at]
        at += 1
        if isinstance(ins, Label) or (ins.guard and bool(registers[ins.guard[0].name]) == ins.guard[1]):
            continue
        o = ins.operands
        kind = ins.modifiers[-1] if ins.modifiers else ""
        match ins.opcode:
            case "ld" if "param" in ins.modifiers:
                assert isinstance(o[1], Address) and isinstance(o[1].base, Symbol)
                registers[o[0].name] = {"a": IN, "b": OUT, "c": ("par", 0), "d": ("par", 1)}[o[1].base.name]  # type: ignore[union-attr]
            case "ld":
                assert isinstance(o[1], Address)
                offset = registers[o[1].base.name] + o[1].offset - IN  # type: ignore[union-attr]
                registers[o[0].name] = tests[(offset - 256) // 4] if offset >= 256 else ("in", offset // size)  # type: ignore[union-attr]
            case "st":
                assert isinstance(o[0], Address)
                offset = registers[o[0].base.name] + o[0].offset - OUT  # type: ignore[union-attr]
                if offset:
                    stored[offset] = value(o[1], type_name)
            case "bra":
                assert isinstance(o[0], LabelRef)
                at = labels[o[0].name]
            case "ret":
                break
            case "fence" | "bar" | "setmaxnreg":
                pass
            case "setp":
                a, b = value(o[1]), value(o[2])
                registers[o[0].name] = a > b if ins.modifiers[0] == "gt" else a < b  # type: ignore[union-attr]
            case _:
                a = [value(x, kind) for x in o[1:]]
                if kind == "u32":
                    result: Any = a[0] if ins.opcode == "mov" else a[0] + a[1]
                else:
                    result = operate(algebra, ins.opcode, a)
                registers[o[0].name] = result  # type: ignore[union-attr]
    return stored


def operate(g: Algebra, opcode: str, a: list[Term]) -> Term:
    match opcode:
        case "mov" | "cvta":
            return a[0]
        case "neg":
            return g.neg(a[0])
        case "abs":
            return g.abs(a[0])
        case "mul":
            return g.mul(*a)
        case "add":
            return g.add(*a)
        case "sub":
            return g.add(a[0], g.neg(a[1]))
        case "fma":
            return g.fma(*a)
    raise NotImplementedError(opcode)


# the machine code's side --------------------------------------------------------------------------------------------
class Unknown(Exception):
    """An instruction this reader does not know; the kernel is left out."""


_NOTHING = {"NOP", "BSSY", "BSYNC", "WARPSYNC", "ERRBAR", "CGAERRBAR", "MEMBAR", "CCTL", "BAR", "USETMAXREG", "YIELD", "DEPBAR"}
_ORDER: dict[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
}  # fmt: skip
_SPLIT = re.compile(r",\s*(?![^\[]*\])")


class Sass:
    """Executes one thread of a disassembled kernel. Registers hold integers, or expressions as ("term", x) does."""

    def __init__(self, lines: list[tuple[int, str]], algebra: Algebra, tests: list[int], type_name: str) -> None:
        self.lines = [line for line in lines if line[0] >= 0]
        self.index: dict[str, int] = {}  # label -> the instruction behind it
        for address, text in lines:
            if address < 0:
                self.index[text] = sum(a >= 0 for a, _ in lines[: lines.index((address, text))])
        self.g, self.tests, self.t = algebra, tests, type_name
        self.size = 4 if type_name == "f32" else 8
        self.regs: dict[str, Any] = {}
        self.preds: dict[str, bool] = {}
        self.stored: dict[int, Term] = {}
        self.at = 0

    def run(self) -> dict[int, Term]:
        for _ in range(20000):
            text = self.lines[self.at][1]
            self.at += 1
            guard = re.match(r"@(!?U?P\w+)\s+", text)
            if guard:
                text = text[guard.end() :]
                if not self.pred(guard[1]):
                    continue
            name, _, rest = text.partition(" ")
            if name == "EXIT":
                return self.stored
            self.step(name.split("."), [o.strip() for o in _SPLIT.split(rest.strip())] if rest.strip() else [])
        raise Unknown("endless")

    # operands
    def pred(self, text: str) -> bool:
        if text[0] == "!":
            return not self.pred(text[1:])
        return text in ("PT", "UPT") or self.preds.get(text, False)

    def constant_bank(self, text: str) -> Any:
        offset = int(re.findall(r"\[(0x[0-9a-f]+)\]", text)[-1], 16)
        if offset in (0x220, 0x220 + self.size):
            return ("par", int(offset != 0x220))
        words = {0x210: 0, 0x214: IN >> 32, 0x218: 0, 0x21C: OUT >> 32}
        if (offset == 0x224 and self.size == 8) or offset == 0x22C:
            return ("high",)
        return words.get(offset, 0)

    def raw(self, text: str) -> Any:
        text = text.replace(".reuse", "").removesuffix(".64")
        if text in ("RZ", "URZ", "SRZ"):
            return 0
        if text[:2] == "c[":
            return self.constant_bank(text)
        if re.fullmatch(r"U?R\d+", text):
            return self.regs.get(text, ("undefined",))
        if re.fullmatch(r"0x[0-9a-f]+", text):
            return int(text, 16)
        raise Unknown(text)

    def integer(self, text: str) -> int:
        if text[0] == "-":
            return -self.integer(text[1:])
        if text[0] == "~":
            return ~self.integer(text[1:])
        value = self.raw(text)
        if isinstance(value, tuple):
            raise Unknown(f"integer operation on {value}")
        return int(value)

    def term(self, text: str) -> Term:
        text = text.replace(".reuse", "")
        if re.fullmatch(r"-?\+?(\d+(\.\d*)?(e[-+]?\d+)?|INF|QNAN)", text):
            x = float(text.replace("QNAN", "nan"))
            code, unsigned = ("<f", "<I") if self.t == "f32" else ("<d", "<Q")
            return ("bits", struct.unpack(unsigned, struct.pack(code, x))[0])
        if text[0] == "-":
            return self.g.neg(self.term(text[1:]))
        if text[0] == "|":
            return self.g.abs(self.term(text[1:-1]))
        value = self.raw(text)
        if isinstance(value, tuple):
            return value
        if self.size == 8 and re.fullmatch(r"U?R\d+", text):
            high = self.raw(next_register(text))
            if isinstance(high, tuple):
                raise Unknown(text)
            value |= high << 32
        return ("bits", value)

    # instructions
    def step(self, name: list[str], o: list[str]) -> None:
        op = name[0]
        uniform = op.removeprefix("U") if op[:1] == "U" else op
        if op in _NOTHING:
            return
        match uniform:
            case "BRA":
                if all(self.pred(p) for p in o[:-1]):
                    self.at = self.index[o[-1].strip("`() ")]
            case "LDC" | "MOV":
                self.move(o[0], o[1], "64" in name)
            case "S2R" | "S2UR":
                self.regs[o[0]] = 0
            case "CS2R":
                self.regs[o[0]] = 0
                if "32" not in name:
                    self.regs[next_register(o[0])] = 0
            case "R2UR":
                self.regs[o[0]] = self.raw(o[1])
            case "LDG":
                self.load(o, "64" in name)
            case "STG":
                address = self.address(o[0]) - OUT
                if address:
                    self.stored[address] = self.term(o[1])
            case "FADD" | "DADD" | "FMUL" | "DMUL" | "FFMA" | "DFMA":
                a = [self.term(x) for x in o[1:]]
                result = operate(self.g, {"ADD": "add", "MUL": "mul", "FMA": "fma"}[op[1:]], a)
                for scale in (x for x in name[1:] if re.fullmatch(r"[MD][248]", x)):  # times or divided by 2, 4, 8
                    power = {"2": 1, "4": 2, "8": 3}[scale[1]] * (1 if scale[0] == "M" else -1)
                    result = self.g.mul(result, ("bits", (127 + power) << 23))
                self.put(o[0], result)
            case "FSEL" | "SEL":
                source = o[1] if self.pred(o[3]) else o[2]
                self.regs[o[0]] = self.term(source) if op == "FSEL" else self.raw(source)
            case "HFMA2" if o[1:3] == ["-RZ", "RZ"]:
                high, low = (struct.unpack("<H", struct.pack("<e", float(x)))[0] for x in o[3:5])
                self.regs[o[0]] = high << 16 | low
            case "IMAD" if "MOV" in name and o[3][0] != "-":
                self.regs[o[0]] = self.raw(o[3])
            case "IMAD":
                self.word(o[0], self.integer(o[1]) * self.integer(o[2]) + self.integer(o[3]))
            case "IADD3" | "VIADD":
                terms = [x for x in o[1:] if x not in ("PT", "!PT", "UPT", "!UPT")]
                self.word(o[0], sum(self.integer(x) for x in terms))
            case "LOP3":
                self.logic(o)
            case "ISETP":
                self.compare(name, o)
            case "PLOP3":
                where = 4 * self.pred(o[2]) + 2 * self.pred(o[3]) + self.pred(o[4])
                self.preds[o[0]], self.preds[o[1]] = (bool(int(x, 16) >> where & 1) for x in o[5:7])
            case _:
                raise Unknown(".".join(name))

    def word(self, register: str, value: int) -> None:
        self.regs[register] = value & 0xFFFFFFFF

    def put(self, register: str, value: Term) -> None:
        self.regs[register] = value
        if self.size == 8:
            self.regs[next_register(register)] = ("high", value)

    def move(self, target: str, source: str, wide: bool) -> None:
        self.regs[target] = self.raw(source)
        if wide:
            offset = int(re.findall(r"\[(0x[0-9a-f]+)\]", source)[-1], 16)
            self.regs[next_register(target)] = self.constant_bank(f"c[0x0][{offset + 4:#x}]")

    def address(self, text: str) -> int:
        found = re.search(r"\[(U?R\d+)(?:\.64)?(?:\+(-?0x[0-9a-f]+))?\]$", text)
        if not found:
            raise Unknown(text)
        base = self.integer(found[1]) | self.integer(next_register(found[1])) << 32
        return base + int(found[2] or "0", 16)

    def load(self, o: list[str], wide: bool) -> None:
        offset = self.address(o[1]) - IN
        for n in range(2 if wide and self.size == 4 else 1):
            at = offset + 4 * n
            register = o[0] if n == 0 else next_register(o[0])
            if at >= 256:
                self.regs[register] = self.tests[(at - 256) // 4]
            elif self.size == 8:
                self.put(register, ("in", at // 8))
            else:
                self.regs[register] = ("in", at // 4)

    def logic(self, o: list[str]) -> None:
        if re.match(r"U?P", o[0]):
            predicate, o = o[0], o[1:]
        else:
            predicate = ""
        a, b, c = (self.integer(x) & 0xFFFFFFFF for x in o[1:4])
        table = int(o[4], 16)
        result = 0
        for bit in range(32):
            where = 4 * (a >> bit & 1) + 2 * (b >> bit & 1) + (c >> bit & 1)
            result |= (table >> where & 1) << bit
        self.regs[o[0]] = result
        if predicate:
            self.preds[predicate] = bool(result)

    def compare(self, name: list[str], o: list[str]) -> None:
        a, b = self.integer(o[2]) & 0xFFFFFFFF, self.integer(o[3]) & 0xFFFFFFFF
        if "U32" not in name:
            a, b = (x - (x >> 31 << 32) for x in (a, b))
        result, other = _ORDER[name[1]](a, b), self.pred(o[4])
        kind = "AND" if "AND" in name else "OR" if "OR" in name else "XOR"
        combine = {"AND": lambda x: x and other, "OR": lambda x: x or other, "XOR": lambda x: x != other}[kind]
        self.preds[o[0]], self.preds[o[1]] = combine(result), combine(not result)


def next_register(name: str) -> str:
    prefix, number = re.fullmatch(r"(U?R)(\d+)", name).groups()  # type: ignore[union-attr]
    return f"{prefix}{int(number) + 1}"


# comparison ---------------------------------------------------------------------------------------------------------
def study(seed: int, count: int, shape: str, type_name: str, ftz: str, verbose: int, options: list[str]) -> Counter[str]:
    rng = random.Random(seed)
    texts = {f"k{n}": Writer(rng, type_name, shape, ftz).kernel(f"k{n}", rng.randint(3, 14)) for n in range(count)}
    module = parse_module(Source("study.ptx", HEAD + "".join(texts.values())))
    with tempfile.TemporaryDirectory() as folder:
        machine = assemble(HEAD + "".join(texts.values()), Path(folder), options)
    algebra = Algebra(type_name)
    totals: Counter[str] = Counter()
    for function in module.entries:
        fused = contract(function)
        totals["fused"] += sum(i.opcode == "fma" for i in fused.instructions) - sum(
            i.opcode == "fma" for i in function.instructions
        )
        wrong = None
        for _ in range(6):
            tests = [rng.randint(0, 5) for _ in range(TESTS)]
            mine = run_ptx(fused, algebra, tests, type_name)
            try:
                theirs = Sass(machine[function.name], algebra, tests, type_name).run()
            except Unknown as unknown:
                totals[f"unknown {unknown}"] += 1
                break
            if mine != theirs:
                wrong = tests, mine, theirs
                break
        else:
            totals["same"] += 1
        if wrong:
            totals["different"] += 1
            if totals["different"] <= verbose:
                explain(texts[function.name], *wrong)
    return totals


def explain(text: str, tests: list[int], mine: dict[int, Term], theirs: dict[int, Term]) -> None:
    print("-" * 100)
    print(text)
    print("integers", tests)
    for offset in sorted(mine.keys() | theirs.keys()):
        a, b = mine.get(offset), theirs.get(offset)
        if a != b:
            print(f"  [{offset}] contract.py {show(a)[:300]}\n  [{offset}] ptxas       {show(b)[:300]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--shape", choices=("straight", "branches", "loops", "unrolled"), default="loops")
    parser.add_argument("--type", choices=("f32", "f64"), default="f32")
    parser.add_argument("--ftz", action="store_true")
    parser.add_argument("--verbose", type=int, default=3, help="mismatches shown")
    parser.add_argument("--ptxas-option", action="append", default=[])
    o = parser.parse_args()
    totals = study(o.seed, o.count, o.shape, o.type, ".ftz" if o.ftz else "", o.verbose, o.ptxas_option)
    print(", ".join(f"{n} {what}" for what, n in totals.most_common()))
    sys.exit(1 if totals["different"] else 0)


if __name__ == "__main__":
    main()
