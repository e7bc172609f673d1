"""What every scalar instruction computes (PTX ISA 9.1, Instruction Set), on the 32 lanes of a warp at once.

`SEMANTICS[opcode](scope, form, *sources)` writes LLVM instructions through Values and returns the result, or a tuple of
results: `(p, q)` always for setp, `(d, p)` for lop3 with a predicate. Sources and results have the 32-lane vector types
of the instruction's operand types; floating-point formats other than .f32 and .f64 travel as raw bits.

scope.py      registration, forms, out-of-line functions (`LIBRARY`)
integer.py    integer arithmetic, bit fields; logic.py: logic, shifts; compare.py: comparison and selection
float.py      .f32 and .f64; half.py: .f16, .bf16 and packed; convert.py, narrow.py, minifloat.py: cvt
approximate.py  approximate functions; quotient.py: parts of approximate divisions
"""

from mmulator.machine.meaning import approximate, compare, convert, float, half, integer, logic, move, quotient
from mmulator.machine.meaning.scope import LIBRARY, SEMANTICS, Form, Outlined, Scope

__all__ = [
    "LIBRARY", "SEMANTICS", "Form", "Outlined", "Scope", "approximate", "compare", "convert", "float", "half",
    "integer", "logic", "move", "quotient",
]  # fmt: skip
