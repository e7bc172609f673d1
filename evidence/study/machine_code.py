"""Machine code of ptxas as PTX that says exactly what it does: one statement an instruction, every rounding written out.

`translate(lines, name, parameters)` reads what nvdisasm prints of a kernel for sm_90a. The result can be launched beside
the kernel it was made from: what differs is what ptxas did to the kernel and mmulator did not. Instructions that it does
not know raise `Unknown`.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
PARAMETERS = 0x210  # where sm_90 keeps the first kernel parameter in the constant bank
_SPLIT = re.compile(r",\s*(?![^\[]*\])")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?(e[-+]?\d+)?|INF|QNAN|SNAN)")


class Unknown(Exception):
    """An instruction or operand that this reader does not know."""


def assemble(text: str, folder: Path, options: list[str] | None = None) -> dict[str, list[tuple[int, str]]]:
    """Kernel name -> (address, instruction), by $PTXAS and $NVDISASM."""
    source, binary = folder / "study.ptx", folder / "study.cubin"
    source.write_text(text)
    command = [os.environ.get("PTXAS", "ptxas"), "-arch=sm_90a", *(options or []), "-o", str(binary), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    dump = subprocess.run([os.environ.get("NVDISASM", "nvdisasm"), "-c", str(binary)], check=True, capture_output=True, text=True)
    kernels: dict[str, list[tuple[int, str]]] = {}
    current: list[tuple[int, str]] = []
    pending: list[str] = []
    for line in dump.stdout.splitlines():
        if found := re.match(r"\.text\.(\S+):", line):
            current = kernels.setdefault(found[1], [])
        elif found := re.match(r"(\.L\S+):", line):
            pending.append(found[1])
        elif found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
            current += [(-1, name) for name in pending]
            pending = []
            current.append((int(found[1], 16), found[2]))
    return kernels


class _Kernel:
    def __init__(self, parameters: list[str]) -> None:
        self.code: list[str] = []
        self.parameters: dict[int, str] = {}  # offset -> name
        at = 0
        for text in parameters:
            size = 8 if "64" in text else 4
            at = -(-at // size) * size
            self.parameters[at] = text.split()[-1]
            at += size
        self.fresh = 0
        self.turns: dict[str, str] = {}  # register -> the angle it holds in turns

    def new(self, kind: str = "t") -> str:
        self.fresh += 1
        return f"%{kind}{self.fresh}"

    def emit(self, text: str) -> None:
        self.code.append(self.guard + text + ";")

    guard = ""

    # operands
    def word(self, text: str) -> str:
        """An operand of 32 bits, as it stands."""
        text = text.replace(".reuse", "").strip()
        if text.startswith("-") and re.match(r"-U?R", text):
            t = self.new()
            self.emit(f"neg.s32 {t}, {self.word(text[1:])}")
            return t
        if text.startswith("~"):
            t = self.new()
            self.emit(f"not.b32 {t}, {self.word(text[1:])}")
            return t
        if text in ("RZ", "URZ", "SRZ"):
            return "0"
        if re.fullmatch(r"U?R\d+", text):
            return "%" + text
        if found := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text):
            offset = int(found[1], 16) - PARAMETERS
            t = self.new()
            if offset < 0:
                return "0"
            start = max(p for p in self.parameters if p <= offset)
            self.emit(f"ld.param.b32 {t}, [{self.parameters[start]}+{offset - start}]")
            return t
        if re.fullmatch(r"-?0x[0-9a-f]+", text):
            return str(int(text, 16) & 0xFFFFFFFF)
        raise Unknown(text)

    def single(self, text: str) -> str:
        """An operand of an f32 instruction."""
        text = text.replace(".reuse", "").strip()
        if _NUMBER.fullmatch(text):
            return f"0f{single_bits(text):08x}"
        flip = text.startswith("-")
        text = text[1:] if flip else text
        absolute = text.startswith("|")
        text = text.strip("|")
        value = self.word(text)
        if value == "0":
            return f"0f{(1 << 31 if flip else 0):08x}"
        for wanted, op in ((absolute, "and.b32 {}, {}, 0x7fffffff"), (flip, "xor.b32 {}, {}, 0x80000000")):
            if wanted:
                t = self.new()
                self.emit(op.format(t, value))
                value = t
        return value

    def predicate(self, text: str) -> tuple[str, bool]:
        """Its name and whether it is negated; PT is a register that is always true."""
        return "%" + text.strip("!"), text.startswith("!")

    def pick(self, text: str) -> str:
        name, negated = self.predicate(text)
        if not negated:
            return name
        t = self.new("q")
        self.emit(f"not.pred {t}, {name}")
        return t

    def put(self, target: str) -> str:
        return "%dump" if target in ("RZ", "URZ") else "%" + target


def single_bits(text: str) -> int:
    text = text.strip()
    if "NAN" in text:
        return 0xFFFFFFFF if text[0] == "-" else 0x7FFFFFFF
    return int(struct.unpack("<I", struct.pack("<f", float(text)))[0])


def _float_modifiers(name: list[str]) -> str:
    rounding = next((r.lower() for r in name if r in ("RZ", "RM", "RP")), "rn")
    return "." + rounding + (".ftz" if "FTZ" in name else "") + (".sat" if "SAT" in name else "")


def _arithmetic(k: _Kernel, name: list[str], o: list[str]) -> None:
    op = {"FADD": "add", "FMUL": "mul", "FFMA": "fma"}[name[0]]
    if op == "mul" and "RZ" in name and o[2].startswith("0.1591"):
        k.turns[o[0]] = k.new()  # the unit takes turns, the instruction does not
        k.emit(f"mov.b32 {k.turns[o[0]]}, {k.single(o[1])}")
    scale = next((s for s in name if re.fullmatch(r"[MD][248]", s)), "")
    if scale:
        _scaled(k, name, o, scale)
        return
    k.emit(f"{op}{_float_modifiers(name)}.f32 {k.put(o[0])}, {', '.join(k.single(x) for x in o[1:])}")


def _scaled(k: _Kernel, name: list[str], o: list[str], scale: str) -> None:
    """A product times a power of two, rounded once."""
    wide = [k.new("d") for _ in range(3)]
    ftz = ".ftz" if "FTZ" in name else ""
    for d, x in zip(wide, o[1:3]):
        k.emit(f"cvt{ftz}.f64.f32 {d}, {k.single(x)}")
    factor = float(scale[1]) if scale[0] == "M" else 1 / float(scale[1])
    bits = struct.unpack("<Q", struct.pack("<d", factor))[0]
    k.emit(f"mul.rn.f64 {wide[2]}, {wide[0]}, {wide[1]}")
    k.emit(f"mul.rn.f64 {wide[2]}, {wide[2]}, 0d{bits:016x}")
    k.emit(f"cvt.rn{ftz}{'.sat' if 'SAT' in name else ''}.f32.f64 {k.put(o[0])}, {wide[2]}")
    k.emit(f"mul.rn{ftz}.f32 {k.put(o[0])}, {k.put(o[0])}, 0f3f800000")  # flushed, and no payload of a NaN


_UNIT = {"RCP": "rcp", "RSQ": "rsqrt", "SQRT": "sqrt", "EX2": "ex2", "LG2": "lg2", "SIN": "sin", "COS": "cos"}


def _unit(k: _Kernel, name: list[str], o: list[str]) -> None:
    if name[1] == "TANH" and len(name) == 2:
        k.emit(f"tanh.approx.f32 {k.put(o[0])}, {k.single(o[1])}")
    elif name[1] in ("SIN", "COS") and o[1] in k.turns:
        k.emit(f"{_UNIT[name[1]]}.approx.ftz.f32 {k.put(o[0])}, {k.turns[o[1]]}")
    elif name[1] in _UNIT and len(name) == 2 and name[1] not in ("SIN", "COS"):
        k.emit(f"{_UNIT[name[1]]}.approx.ftz.f32 {k.put(o[0])}, {k.single(o[1])}")
    else:
        raise Unknown(".".join(name))


def _compare(k: _Kernel, kind: str, name: list[str], o: list[str], values: tuple[str, str]) -> None:
    t = k.new("q")
    k.emit(f"setp.{name[1].lower()}{'.ftz' if 'FTZ' in name else ''}.{kind} {t}, {values[0]}, {values[1]}")
    combine = next(x for x in name if x in ("AND", "OR", "XOR")).lower()
    other = k.pick(o[4])
    result, opposite = k.new("q"), k.new("q")
    k.emit(f"{combine}.pred {result}, {t}, {other}")
    k.emit(f"not.pred {opposite}, {t}")
    k.emit(f"{combine}.pred {opposite}, {opposite}, {other}")
    for target, value in ((o[0], result), (o[1], opposite)):
        if target not in ("PT", "UPT"):
            k.emit(f"mov.pred %{target}, {value}")


def _minimum(k: _Kernel, name: list[str], o: list[str]) -> None:
    if set(name[1:]) - {"FTZ", "NAN"}:
        raise Unknown(".".join(name))
    a, b = k.single(o[1]), k.single(o[2])
    modifiers = (".ftz" if "FTZ" in name else "") + (".NaN" if "NAN" in name else "")
    low, high = k.new(), k.new()
    k.emit(f"min{modifiers}.f32 {low}, {a}, {b}")
    k.emit(f"max{modifiers}.f32 {high}, {a}, {b}")
    k.emit(f"selp.b32 {k.put(o[0])}, {low}, {high}, {k.pick(o[3])}")


def _constant_pair(k: _Kernel, name: list[str], o: list[str]) -> None:
    if o[1:3] != ["-RZ", "RZ"] or "BF16_V2" in name:
        raise Unknown(".".join(name))
    high, low = (struct.unpack("<H", struct.pack("<e", float(x)))[0] for x in o[3:5])
    k.emit(f"mov.b32 {k.put(o[0])}, {high << 16 | low}")


def _logic(k: _Kernel, name: list[str], o: list[str]) -> None:
    predicate = ""
    if re.match(r"U?P", o[0]):
        predicate, o = o[0], o[1:]
    t = k.new()
    k.emit(f"lop3.b32 {t}, {', '.join(k.word(x) for x in o[1:4])}, {o[4]}")
    k.emit(f"mov.b32 {k.put(o[0])}, {t}")
    if predicate:
        k.emit(f"setp.ne.u32 %{predicate}, {t}, 0")


def _address(k: _Kernel, text: str) -> tuple[str, int]:
    found = re.search(r"\[(U?R\d+)(?:\.64)?(?:\+(-?0x[0-9a-f]+))?\]$", text)
    if not found:
        raise Unknown(text)
    wide = k.new("w")
    k.emit(f"mov.b64 {wide}, {{%{found[1]}, {k.put(following(found[1]))}}}")
    return wide, int(found[2] or "0", 16)


def following(register: str, n: int = 1) -> str:
    prefix, number = re.fullmatch(r"(U?R)(\d+)", register).groups()  # type: ignore[union-attr]
    return f"{prefix}{int(number) + n}"


def _load(k: _Kernel, name: list[str], o: list[str]) -> None:
    wide, offset = _address(k, o[1])
    words = 4 if "128" in name else 2 if "64" in name else 1
    if "U16" in name:
        h = k.new("h")
        k.emit(f"ld.global.b16 {h}, [{wide}+{offset}]")
        k.emit(f"cvt.u32.u16 {k.put(o[0])}, {h}")
        return
    for n in range(words):
        k.emit(f"ld.global.b32 {k.put(following(o[0], n))}, [{wide}+{offset + 4 * n}]")


def _store(k: _Kernel, name: list[str], o: list[str]) -> None:
    wide, offset = _address(k, o[0])
    words = 4 if "128" in name else 2 if "64" in name else 1
    if "U16" in name:
        h = k.new("h")
        k.emit(f"cvt.u16.u32 {h}, {k.word(o[1])}")
        k.emit(f"st.global.b16 [{wide}+{offset}], {h}")
        return
    for n in range(words):
        k.emit(f"st.global.b32 [{wide}+{offset + 4 * n}], {k.word(o[1] if o[1] == 'RZ' else following(o[1], n))}")


def _multiply_add(k: _Kernel, name: list[str], o: list[str]) -> None:
    if "WIDE" in name:
        unsigned = "U32" in name
        w = k.new("w")
        kind = "u32" if unsigned else "s32"
        k.emit(f"mul.wide.{kind} {w}, {k.word(o[1])}, {k.word(o[2])}")
        if o[3] != "RZ":
            other = k.new("w")
            k.emit(f"mov.b64 {other}, {{{k.word(o[3])}, {k.word(next_constant(o[3]))}}}")
            k.emit(f"add.s64 {w}, {w}, {other}")
        k.emit(f"mov.b64 {{{k.put(o[0])}, {k.put(following(o[0]))}}}, {w}")
        return
    if set(name[1:]) - {"MOV", "U32", "IADD", "SHL"}:
        raise Unknown(".".join(name))
    k.emit(f"mad.lo.s32 {k.put(o[0])}, {k.word(o[1])}, {k.word(o[2])}, {k.word(o[3])}")


def next_constant(text: str) -> str:
    if found := re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text):
        return f"c[0x0][{int(found[1], 16) + 4:#x}]"
    return following(text)


def _sum3(k: _Kernel, name: list[str], o: list[str]) -> None:
    words = [x for x in o[1:] if not re.fullmatch(r"!?U?P(T|\d)", x)]
    if len(words) < len(o) - 1 and any(x not in ("PT", "UPT", "!PT", "!UPT") for x in o[1:] if re.fullmatch(r"!?U?P(T|\d)", x)):
        raise Unknown(" ".join(o))
    t = k.new()
    k.emit(f"add.s32 {t}, {k.word(words[0])}, {k.word(words[1])}")
    if len(words) > 2:
        k.emit(f"add.s32 {t}, {t}, {k.word(words[2])}")
    k.emit(f"mov.b32 {k.put(o[0])}, {t}")


def _move(k: _Kernel, name: list[str], o: list[str]) -> None:
    source = o[1]
    if "64" in name:
        values = [k.word(source), k.word(next_constant(source))]
        for n, v in enumerate(values):
            k.emit(f"mov.b32 {k.put(following(o[0], n))}, {v}")
    else:
        k.emit(f"mov.b32 {k.put(o[0])}, {k.word(source)}")


def _special(k: _Kernel, name: list[str], o: list[str]) -> None:
    source = {"SR_TID.X": "%tid.x", "SR_CTAID.X": "%ctaid.x"}.get(o[1])
    if source is None:
        raise Unknown(o[1])
    k.emit(f"mov.u32 {k.put(o[0])}, {source}")


def _select(k: _Kernel, name: list[str], o: list[str]) -> None:
    a, b = (k.single(x) if name[0] == "FSEL" else k.word(x) for x in o[1:3])
    if "FTZ" in name:
        raise Unknown("FSEL.FTZ")
    k.emit(f"selp.b32 {k.put(o[0])}, {a}, {b}, {k.pick(o[3])}")


def _to_float(k: _Kernel, name: list[str], o: list[str]) -> None:
    kind = next((x.lower() for x in name[1:] if x in ("S32", "U32")), "")
    if not kind or ("F32" not in name and name[0] != "I2F"):
        raise Unknown(".".join(name))
    k.emit(f"cvt.{next((x.lower() for x in name if x in ('RZ', 'RM', 'RP')), 'rn')}.f32.{kind} {k.put(o[0])}, {k.word(o[1])}")


def _widen(k: _Kernel, name: list[str], o: list[str]) -> None:
    """HADD2.F32 d, -RZ, x.H0_H0: an f16 as f32."""
    found = re.fullmatch(r"(-?)(\|?)(R\d+)\|?\.H([01])_H\4\|?", o[2].replace(".reuse", ""))
    if "F32" not in name or o[1] != "-RZ" or not found or found[1] or found[2]:
        raise Unknown(f"{'.'.join(name)} {o}")
    halves = k.new("h"), k.new("h")
    k.emit(f"mov.b32 {{{halves[0]}, {halves[1]}}}, %{found[3]}")
    k.emit(f"cvt.f32.f16 {k.put(o[0])}, {halves[int(found[4])]}")


def _narrow(k: _Kernel, name: list[str], o: list[str]) -> None:
    if name[:4] == ["F2FP", "BF16", "F32", "PACK_AB"] or name[:4] == ["F2FP", "F16", "F32", "PACK_AB"]:
        kind = "bf16x2" if name[1] == "BF16" else "f16x2"
        k.emit(f"cvt.rn.{kind}.f32 {k.put(o[0])}, {k.single(o[1])}, {k.single(o[2])}")
        return
    raise Unknown(".".join(name))


def _shift(k: _Kernel, name: list[str], o: list[str]) -> None:
    side = "l" if "L" in name else "r"
    if name[0] == "USHF" or "HI" in name or "S64" in name or "U64" in name:
        if not (side == "r" and o[1] == "RZ" and "HI" in name):
            raise Unknown(".".join(name))
        kind = "s32" if "S32" in name else "u32"
        k.emit(f"shr.{kind} {k.put(o[0])}, {k.word(o[3])}, {k.word(o[2])}")
        return
    if side == "l" and o[3] == "RZ":
        k.emit(f"shl.b32 {k.put(o[0])}, {k.word(o[1])}, {k.word(o[2])}")
        return
    raise Unknown(".".join(name))


def _integers(k: _Kernel, name: list[str], o: list[str]) -> None:
    name = [name[0], name[1], *("LO" if x == "U32" else x for x in name[2:])]
    kind = "u32" if "LO" in name else "s32"
    _compare(k, kind, [x for x in name if x != "LO"], o, (k.word(o[2]), k.word(o[3])))


def _permute(k: _Kernel, name: list[str], o: list[str]) -> None:
    k.emit(f"prmt.b32 {k.put(o[0])}, {k.word(o[1])}, {k.word(o[3])}, {k.word(o[2])}")


def _predicates(k: _Kernel, name: list[str], o: list[str]) -> None:
    inputs = [k.pick(x) for x in o[2:5]]
    words = [k.new() for _ in inputs]
    for w, p in zip(words, inputs):
        k.emit(f"selp.b32 {w}, 1, 0, {p}")
    results = []
    for table in o[5:7]:
        t, q = k.new(), k.new("q")
        k.emit(f"lop3.b32 {t}, {', '.join(words)}, {int(table, 16)}")
        k.emit(f"setp.ne.u32 {q}, {t}, 0")
        results.append(q)
    for target, q in zip(o[:2], results):
        if target not in ("PT", "UPT"):
            k.emit(f"mov.pred %{target}, {q}")


_KNOWN: dict[str, Callable[[_Kernel, list[str], list[str]], None]] = {
    "FADD": _arithmetic, "FMUL": _arithmetic, "FFMA": _arithmetic, "MUFU": _unit, "FMNMX": _minimum, "FSEL": _select,
    "SEL": _select, "FSETP": lambda k, n, o: _compare(k, "f32", n, o, (k.single(o[2]), k.single(o[3]))),
    "ISETP": _integers, "HFMA2": _constant_pair, "LOP3": _logic, "LDG": _load, "STG": _store, "IMAD": _multiply_add,
    "IADD3": _sum3, "VIADD": _sum3, "MOV": _move, "LDC": _move, "S2R": _special, "I2FP": _to_float, "I2F": _to_float,
    "HADD2": _widen, "F2FP": _narrow, "SHF": _shift, "PRMT": _permute, "PLOP3": _predicates,
}  # fmt: skip
_NOTHING = {"NOP", "BSSY", "BSYNC", "WARPSYNC", "YIELD", "DEPBAR"}


def translate(lines: list[tuple[int, str]], name: str, parameters: list[str]) -> str:
    """The kernel as PTX. parameters: declarations of the original, `.param .u64 a`, laid out alike."""
    k = _Kernel(parameters)
    for address, line in lines:
        if address < 0:
            k.guard = ""
            k.code.append(line.replace(".", "_") + ":")
            continue
        guard, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
        text = re.sub(r"\bdesc\[UR\d+\]", "", rest)
        mnemonic, _, operands = text.strip().partition(" ")
        pieces = mnemonic.split(".")
        o = [x.strip() for x in _SPLIT.split(operands.strip())] if operands.strip() else []
        op = pieces[0]
        k.guard = f"@{'!' if '!' in guard else ''}%{guard.strip('@!')} " if guard else ""
        if op in _NOTHING:
            continue
        if op == "EXIT":
            k.emit("ret")
        elif op == "BRA":
            target = re.search(r"\.L\w+", operands)
            if not target or len(o) > 1:
                raise Unknown(line)
            k.emit(f"bra {target[0].replace('.', '_')}")
        else:
            handler = _KNOWN.get(op[1:] if op in ("ULDC", "UMOV", "UIADD3", "UISETP", "ULOP3") else op)
            if op == "ULDC":
                handler = _move
            if handler is None:
                raise Unknown(mnemonic)
            handler(k, pieces, o)
    body = "\n".join(k.code)
    names = sorted(set(re.findall(r"%U?R\d+", body)))
    predicates = sorted(set(re.findall(r"%U?P\d\b", body)))
    fresh = {c: sorted(set(re.findall(rf"%{c}\d+", body))) for c in "tqdwh"}
    kinds = {"t": "b32", "q": "pred", "d": "f64", "w": "b64", "h": "b16"}
    declared = [".reg .b32 " + ", ".join([*names, "%dump"]) + ";", ".reg .pred " + ", ".join([*predicates, "%PT", "%UPT"]) + ";"]
    declared += [f".reg .{kinds[c]} {', '.join(v)};" for c, v in fresh.items() if v]
    declared += ["setp.eq.u32 %PT, 0, 0;", "setp.eq.u32 %UPT, 0, 0;"]
    return f".visible .entry {name}({', '.join(parameters)}) {{\n" + "\n".join(declared) + "\n" + body + "\n}\n"
