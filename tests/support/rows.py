"""The rows of a chapter, each in the forms that it has: written to the end, or refused by name."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, product
from typing import Any
from unittest.mock import patch

import pytest

from mmulator.base.codegen import stencils
from mmulator.base.codegen.lang import Native
from mmulator.base.codegen.types import ptr_to, void
from mmulator.base.codegen.values import Builder, constant, module_text
from mmulator.base.source import Source
from mmulator.compiler import warm
from mmulator.compiler.emit.block import vector_type
from mmulator.compiler.kernel import Jit
from mmulator.compiler.lowering.binding import compute, meaning_of
from mmulator.errors import UnsupportedError
from mmulator.host.module import Module
from mmulator.isa.form import Form
from mmulator.isa.match import match
from mmulator.isa.row import Row
from mmulator.isa.targets import DEVICES, PTX_VERSIONS, default_device
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.calls import outline_of
from mmulator.ptx.program.image import ModuleImage
from mmulator.ptx.program.runnable import unsupported
from mmulator.ptx.verify import verify
from mmulator.runtime.options import DEFAULT, CompileOptions
from tests.support import row_forms
from tests.support.scalar_harness import BOOL, HarnessScope
from tests.support.vectors import NAMES

DECLARED = "".join(
    f".reg .{t} %{t}_<200>; " for t in ("b8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64",
                                       "pred", "b128")
)  # fmt: skip
# Control flow and what stands in a list of its own
WRITTEN = {
    "bra": "bra L; L:", "brx": "TARGETS: .branchtargets L; brx.idx %u32_1, TARGETS; L:", "ret": "ret;", "exit": "exit;",
    "call": "call (%b32_1), f, (%b32_2);", "trap": "trap;",
}  # fmt: skip


def rows_of(chapter: str) -> tuple[Row, ...]:
    return tuple(row for row in row_forms.rows() if row in NAMES[chapter].ROWS)


# run, or refused ----------------------------------------------------------------------------------------------------
def opcodes(chapter: str) -> list[str]:
    return sorted({row.opcode for row in rows_of(chapter)})


def run_or_refuse(chapter: str, opcode: str) -> None:
    """Write the rows of an opcode to the end where `check` lets them through; where it names them, see that a launch does."""
    for row in (r for r in rows_of(chapter) if r.opcode == opcode):
        found = [*groups(row)]
        assert found, row_forms.row_key(row)
        for target, statements, runs in found:
            if runs:
                _is_written(row, text_of(statements, target))
            else:
                for statement in statements[:4]:  # what is refused is the row
                    _is_refused(row, text_of([statement], target))


def _is_written(row: Row, text: str) -> None:
    tree = parse_module(Source("rows.ptx", text))
    assert verify(tree) == (), row_forms.row_key(row)
    assert unsupported(tree) == (), row_forms.row_key(row)
    _write_all(text)


def _is_refused(row: Row, text: str) -> None:
    named = unsupported(parse_module(Source("rows.ptx", text)))
    assert [u.name for u in named] == [row.name], row_forms.row_key(row)
    assert named[0].reason and named[0].reason == row.status.reason, row_forms.row_key(row)
    for way in (_write_all, _launch):
        with pytest.raises(UnsupportedError) as caught:
            way(text)
        assert caught.value.message == f"{row.name} cannot be run: {named[0].reason}", row_forms.row_key(row)


def _write_all(text: str) -> None:
    """Write the code of every instruction of the kernel, without compiling it. What a launch would know of it can be kept."""
    jit, written, natives = write_blocks(text)
    with patch.object(stencils, "chosen", _whole):  # whatever code this machine has kept
        _are_joined(written, natives)
    jit.meaning.wgmma.find_rivals(jit.matrix)
    memory = warm.memory_of(jit.matrix)
    for table in jit.matrix.tables:
        memory.add(table)
    for at in (*jit.queues.values(), *jit.movers.values()):
        assert memory.place(at)[0] == "function"


def write_blocks(text: str, options: CompileOptions = DEFAULT) -> tuple[Jit, dict[int, Builder], dict[str, Native]]:
    """The blocks of a kernel as LLVM lines, and the native functions that they call."""
    tree = parse_module(Source("rows.ptx", text))
    kernel = next(f for f in tree.functions if f.is_entry)
    jit = Jit(tree, kernel, ModuleImage(outline_of(tree)), default_device(tree.target), options)
    natives: dict[str, Native] = {}
    return jit, {block.index: jit._write(block, natives) for block in jit.program.blocks}, natives


def _whole(stencil: stencils.Stencil, split: object) -> None:
    """The choice of whole stencils over pieces."""
    stencil.ready = True


def _are_joined(blocks: dict[int, Builder], natives: dict[str, Native]) -> None:
    """Blocks can be joined from stencils: these are the blocks' own lines, with the names and numbers of the records put back,
    and LLVM takes them."""
    records = stencils.Records()
    assert records.take(blocks, natives)
    texts = {stencil.name: stencil for stencil in records.stencils()}
    for b in blocks.values():
        ends = [0, *b.cuts, len(b.lines)]
        lines = iter("\n".join(b.lines[start:stop]).removeprefix(f"{stencils._ACTIVE}\n") for start, stop in pairwise(ends))
        block = stencils._Block(b, natives)
        for part, _ in block.joined():
            back = _put_back(part)
            assert back == part.lines and back in lines, back
        casts = {line.split()[0]: line for line in b.lines if " = bitcast <32 x " in line}
        for name, other in block.same.items():
            source = casts[name].split()[6]
            assert source == other or block.same[source] == other
        for part, _ in block.joined():
            pieces = block._pieces(part, {*part.results})
            assert _in_one(pieces, block.same) == _named(_read_lines(part), block.same), part.lines
            texts |= {stencil.name: stencil for _, stencil in pieces.parts}
    import llvmlite.binding

    llvmlite.binding.parse_assembly(module_text([*texts.values()])).verify()  # type: ignore[arg-type]


def _in_one(pieces: Any, same: dict[str, str]) -> str:
    """The lines of which a part's pieces are made: each piece with its own names, then without those that were new."""
    lines: list[str] = []
    new: dict[str, str] = {}
    for piece, _ in reversed(pieces.parts):
        back = _put_back(piece)
        assert back == piece.lines
        made = re.fullmatch(r"  (%k\d+) = freeze (?:<[^>]*>|\w+) (.*)", back)
        if made:
            new[made[1]] = made[2]
        else:
            lines.append(back)
    return _without_marks(_named(_named("\n".join(lines), {**same, **new}), {**same, **new}))  # a second name of a constant


def _named(lines: str, names: dict[str, str]) -> str:
    return re.sub(r"%[\w.]+", lambda found: names.get(found[0], found[0]), lines)


def _read_lines(part: Any) -> str:
    """The lines of a part, without those of which it is said that nothing reads them."""
    kept: list[str] = []
    for line in reversed(part.lines.split("\n")):
        made = re.match(r"  (%\w+) = (?!call)", line)
        if made is None or made[1] in part.results or re.search(rf"{made[1]}\b", "\n".join(kept)):
            kept.append(line)
    return _without_marks("\n".join(kept[::-1]))


def _without_marks(lines: str) -> str:
    return re.sub(r"splat ?\(i(?:8|16|32|64) 0\)", "zeroinitializer", lines).replace("splat(", "splat (")


def _put_back(part: Any) -> str:
    names = {short: name for name, short in part.local.items()}

    def back(found: re.Match[str]) -> str:
        word = found[0]
        if word[1] in "xc":
            number = part.given[int(word.partition(".")[2])]
            return f"splat (i{word[2:].partition('.')[0]} {number})" if word[1] == "x" else str(number)
        return names[word] if word[0] == "%" else names[f"%{word}"][1:]

    return re.sub(r"%(?:[vdsl]\d+|[xc]\d+\.\d+|active)|^l\d+(?=:$)", back, part.text, flags=re.MULTILINE)


def _launch(text: str) -> None:
    Module.load(text, name="rows.ptx")["k"].launch(1, 32)


def text_of(statements: list[str], target: str) -> str:
    version = "{}.{}".format(*PTX_VERSIONS[-1])
    return (
        f".version {version}\n.target {target}\n.address_size 64\n.func (.reg .b32 r) f(.reg .b32 a) {{ mov.b32 r, a; ret; }}\n"
        f".visible .entry k()\n{{ {DECLARED}\n" + "\n".join(statements) + "\nret; }\n"
    )


def target_of(form: Form) -> str:
    """A target that has the form, and a device."""
    if form.requires.families:
        return f"sm_{max(n for n in form.requires.families if n != 110 and f'sm_{n}' in DEVICES)}a"  # which lacks an operand
    return "sm_100a" if form.requires.minimum > 90 else "sm_90a"


def _some(row: Row) -> list[tuple[row_forms.Words, Form]]:
    """Some forms. Of a row whose modifiers seldom go together, as those of ld, more are drawn."""
    return next((found for most in (30, 300, 3000) if (found := [*row_forms.forms(row, most)])), [])


def groups(row: Row) -> Iterator[tuple[str, list[str], bool]]:
    """(target, statements, whether they are supported) of the forms of a row."""
    found: dict[tuple[str, bool, str], list[str]] = {}
    for words, form in _some(row):
        if row.opcode == "cvta" and "u32" in words:
            continue  # of modules with addresses of 32 bits
        text = WRITTEN.get(row.opcode) or row_forms.statement(row.opcode, words, form)
        found.setdefault((target_of(form), form.status.runs, form["cta_group"]), []).append(text)  # a kernel has one cta_group
        if row.opcode in WRITTEN:
            break
    for (target, runs, _), statements in found.items():
        yield target, statements, runs


# computed -----------------------------------------------------------------------------------------------------------
def lanewise(chapter: str) -> list[str]:
    """Names of the rows of a chapter whose lanes compute by themselves."""
    return sorted({row.name for row in rows_of(chapter) if _is_lanewise(row)})


def write_forms(chapter: str, name: str) -> None:
    """Write every form of the lane-wise rows of a name: results have the type of the destination, sign included (it says how a
    wider register is filled), and LLVM takes the text, that of the functions which are called as well."""
    written: dict[str, Builder] = {}
    forms = {k: f for r in rows_of(chapter) if r.name == name for k, f in _forms_of(r).items()}
    for number, form in enumerate(forms.values()):
        b, scope = _function(f"form{number}", form)
        written[b.name] = b
        written |= {n: f.build()[0] for n, f in scope.natives.items() if n not in written}
    assert forms
    import llvmlite.binding

    llvmlite.binding.parse_assembly(module_text(list(written.values()))).verify()


@cache
def _is_lanewise(row: Row) -> bool:
    return any(form.status.runs and meaning_of(form).lanewise for _, form in row_forms.forms(row, 8))


def _forms_of(row: Row) -> dict[str, Form]:
    """Every legal choice of modifiers."""
    choices = [(*g.choices, "") if g.optional else g.choices for g in row.slots]
    found = {}
    for words in product(*choices):
        chosen = tuple(filter(None, words))
        for modifiers in ((*row.fixed, *chosen), (*chosen, *row.fixed)):
            form = match(row.opcode, modifiers)
            if isinstance(form, Form) and form.status.runs:
                found[str(form)] = form
    return found


def _function(name: str, form: Form) -> tuple[Builder, HarnessScope]:
    sources = [o for o in form.operands if "w" not in o.access for _ in range(o.count)]
    types = [vector_type(o.type) for o in sources if o.kind != "imm"]
    b = Builder(name, void, [(f"p{n}", ptr_to(ty)) for n, ty in enumerate(types)])
    with b:
        scope = HarnessScope(b, constant(b, BOOL, 0))
        values = iter(b.load(ty, p) for ty, p in zip(types, b.params))
        result = compute(scope, form, *(0x96 if o.kind == "imm" else next(values) for o in sources))
        b.ret()
    first = result[0] if isinstance(result, tuple) else result
    assert first.ty == vector_type(form.operands[0].type), str(form)
    return b, scope
