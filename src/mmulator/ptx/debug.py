"""Debugging directives (PTX ISA 9.1): .loc and .file record lines of the program's own source, and everything else is
skipped.
"""

from mmulator.location import Mark
from mmulator.ptx.cursor import Cursor

DIRECTIVES = frozenset((".loc", ".file", ".section"))


def skip_debug(c: Cursor) -> None:
    """Skip .file and .section, and record .loc in the source. The cursor is at one of DIRECTIVES."""
    directive, known = c.texts[c.at], c.tokens.marks.get(c.at)
    c.at += 1
    if known is not None:
        c.tokens.source.lines.marks.append(known)
        return
    if directive == ".section":
        if not (c.accept("dot") or c.accept("word")):
            c.expect("string", "the section's name")
        c.expect("{")
        depth = 1
        while depth:
            kind = c.kinds[c.at]
            if kind == "end":
                c.fail("the section is not closed", "a '}' is missing")
            depth += (kind == "{") - (kind == "}")
            c.at += 1
        return
    if directive == ".file":
        c.expect("int", "a number")
        c.expect("string", "a file name")
        while c.accept(","):
            c.integer()
        return
    _mark(c)


def _mark(c: Cursor) -> None:
    """Read the rest of a .loc and record it in the source."""
    start = c.tokens.starts[c.at - 1]
    file = c.number("a file number")
    line = c.number("a line number")
    column = c.number("a column") if c.kinds[c.at] == "int" else 0
    if not c.accept(","):
        c.tokens.source.lines.marks.append(Mark(start, file, line, column))
        return
    if not c.accept_text("function_name"):
        c.fail(f"expected function_name, found {c.found()}")
    label = c.texts[c.at]
    if not c.accept("dot"):
        c.expect("word", "a label")
    skip = c.integer() if c.accept("+") else 0
    c.expect(",")
    if not c.accept_text("inlined_at"):
        c.fail(f"expected inlined_at, found {c.found()}")
    call = c.number("a file number"), c.number("a line number"), c.number("a column")
    c.tokens.source.lines.marks.append(Mark(start, file, line, column, label, max(skip, 0), call))
