"""An element's sum as text of 80 columns and as HTML: chunk by chunk, the products, what was cut from them, the roundings."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from mmulator.base.tables import element as tag
from mmulator.base.tables import html_table, text_table
from mmulator.matrix.numerics.dot import MODES, Origin, SumStep, Term
from mmulator.matrix.numerics.element import ElementSum, Loss, Number, cut, hexed, last_place, lost, number, ulps_off
from mmulator.matrix.numerics.formats import element_type

FEW = 2  # steps that are all shown in full
ROWS = 12  # steps of a longer sum that the overview of a text has
MANY = 10**15  # sums from here on are not written as integers
OVERVIEW = ("step", "adds", "largest exponent", "cut", "rounded off", "result", "bits")


def decimal(value: Number, digits: int = 6) -> str:
    """A number with a few significant decimal digits."""
    if not isinstance(value, Fraction):
        return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"
    text = f"{Decimal(value.numerator) / Decimal(value.denominator):.{digits}g}"
    return text if "e" in text or "." not in text else text.rstrip("0").rstrip(".")


def signed(value: Number, digits: int = 3) -> str:
    """A number with its sign and a few significant decimal digits."""
    return f"{'+' * (value > 0)}{decimal(value, digits)}"


def placed(t: Term) -> str:
    """A term as a hexadecimal float at its own exponent, which is not normalised: 0x2.4p+3."""
    if t.special:
        return decimal(t.special)
    if not t.significand:
        return "0"
    shift = -t.fraction % 4
    whole, rest = divmod(abs(t.significand) << shift, 1 << (t.fraction + shift))
    digits = f"{rest:0{(t.fraction + shift) // 4}x}".rstrip("0") if t.fraction else ""
    return f"{'-' * (t.significand < 0)}0x{whole:x}{'.' * bool(digits)}{digits}p{t.exponent:+d}"


def raw(e: ElementSum, bits: int, dtype: str) -> str:
    """Bits of a result in hexadecimal."""
    return f"0x{bits:0{element_type(dtype).bits // 4}x}"


def label(e: ElementSum, source: Origin) -> str:
    """The name of a term: `k 5`, `C`, `step 2`, `0`."""
    if source.kind == "product":
        return f"k {e.positions[source.number]}"
    return {"c": "C", "step": f"step {source.number}", "zero": "0"}[source.kind]


def adds(e: ElementSum, s: SumStep) -> str:
    """Names of the terms of a step: `k 0..15, C`."""
    ks = [e.positions[source.number] for source in s.sources if source.kind == "product"]
    parts = []
    if ks:
        together = sorted(ks) == [*range(min(ks), max(ks) + 1)]
        some = "" if together else f"{len(ks)} of "
        parts.append(f"{some}k {min(ks)}..{max(ks)}" if len(ks) > 2 else "k " + " ".join(map(str, ks)))
    others = [source for source in s.sources if source.kind != "product"]
    groups = [source.number for source in others if source.kind == "step"]
    if len(groups) > 2:
        parts.append(f"steps {groups[0]}..{groups[-1]}")
        others = [source for source in others if source.kind != "step"]
    parts += [label(e, source) for source in others if source.kind != "zero"]
    return ", ".join(parts)


def largest(e: ElementSum, s: SumStep) -> str:
    """The largest exponent, and the first term that has it."""
    if s.emax is None:
        return "-"
    first = next((source for source, x in zip(s.sources, s.exponents, strict=True) if x == s.emax), None)
    return f"{s.emax} ({label(e, first) if first else 'floor'})"


def reason(e: ElementSum, s: SumStep) -> str:
    """Why a result is NaN or infinite; empty for a finite one."""
    if not s.special:
        return "" if isinstance(s.value, Fraction) else f"the sum is too large for {s.rounding.dtype}" if s.rounding else ""
    found = [(label(e, source), t.special) for source, t in zip(s.sources, s.terms, strict=True) if t.special]
    if s.special == s.special:
        return f"{found[0][0]} is {decimal(found[0][1])}"
    nan = next((name for name, x in found if x != x), None)
    return f"{nan} is NaN" if nan else "Inf and -Inf: " + ", ".join(name for name, _ in found)


def overview(e: ElementSum) -> Iterator[tuple[str, ...]]:
    """A row for each step."""
    for n, s in enumerate(e.steps):
        taken, off = lost(s)
        bits = "-" if s.bits is None or s.rounding is None else raw(e, s.bits, s.rounding.dtype)
        small = ["-" if x == 0 else decimal(x, 3) for x in (taken, off)]
        yield str(n), f"{adds(e, s)}", largest(e, s), *small, decimal(s.value), bits


def _shortened_overview(e: ElementSum) -> Iterator[tuple[str, ...]]:
    """A row for each step; of a long sum the first ones, those around the one that lost most, and the last ones."""
    rows = [*overview(e)]
    if len(rows) <= ROWS + 2:
        yield from rows
        return
    part = ROWS // 3
    middle = chosen(e)[0]
    keep = {*range(part), *range(max(0, middle - part // 2), middle + part // 2), *range(len(rows) - part, len(rows))}
    for n, row in enumerate(rows):
        if n in keep:
            yield row
        elif n - 1 in keep:
            yield ("...", *[""] * (len(OVERVIEW) - 1))


def table(e: ElementSum, s: SumStep) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns and rows of one step: its terms."""
    atype, btype = element_type(e.key.atype), element_type(e.key.btype)
    truncates = s.operation == "sum"
    rows: list[tuple[str, ...]] = []
    for source, t in zip(s.sources, s.terms, strict=True):
        of = source.number
        factors = ("", "")
        if source.kind == "product":
            factors = decimal(number(atype, e.a[of])), decimal(number(btype, e.b[of]))
        value = decimal(t.value) if s.operation in ("integers", "bits") else placed(t)
        row: tuple[str, ...] = (label(e, source), *factors, value)
        if truncates:
            taken = cut(t, s)
            row += ("-" if s.special else str(t.truncated(s.quantum)), hexed(taken) if taken else "-")
        rows.append(row)
    return ("term", "a", "b", "value", *(("kept", "cut") if truncates else ())), rows


def ends(e: ElementSum, s: SumStep) -> tuple[str, str]:
    """Sentences before and after the table of a step."""
    before = {
        "sum": f"largest exponent {largest(e, s)}: terms are cut below 2^{s.quantum}",
        "addition": "an ordinary addition", "fma": "a fused multiply-add", "conversion": "a conversion",
        "integers": "an exact sum", "bits": "ones are counted", "group": "an exact sum, times both scale factors",
    }[s.operation] if not s.special else reason(e, s)  # fmt: skip
    total = f"{s.total} x 2^{s.quantum}"
    if abs(s.total) >= MANY:
        total = shortened(hexed(s.total * Fraction(2) ** s.quantum))
    if s.rounding is None:
        scale = placed(s.scale) if s.scale else "1"
        return before, f"sum {total}, times {scale}: {decimal(s.value, 9)}"
    result = f"{s.rounding.dtype} {decimal(s.value, 9)} = {raw(e, s.result, s.rounding.dtype)}"
    if s.special:
        return before, f"result: {result}"
    keep = f", {s.rounding.keep} bits" if s.rounding.keep not in (None, element_type(s.rounding.dtype).mantissa) else ""
    off = lost(s)[1]
    moved = reason(e, s) or (f"off by {decimal(off, 3)}" if off else "exact")
    return before, f"sum {total}; {MODES[s.rounding.mode]}{keep}: {result} ({moved})"


def chosen(e: ElementSum) -> list[int]:
    """The steps that are shown in full where not all are: that in which most was lost, and a first special one."""
    special = next((n for n, s in enumerate(e.steps) if not isinstance(s.value, Fraction)), None)
    if special is not None:
        return [special]
    sizes = {n: sum(abs(x) for x in lost(s)) for n, s in enumerate(e.steps) if s.bits is not None}
    return [max(sizes, key=lambda n: (sizes[n], n))]


def shortened(text: str, most: int = 24) -> str:
    """A hexadecimal float of at most some letters: digits that are left out are dots."""
    digits, _, exponent = text.partition("p")
    return text if len(text) <= most else f"{digits[: most - len(exponent) - 3]}..p{exponent}"


def head(e: ElementSum) -> str:
    """The device, and its arithmetic in words."""
    p = e.profile
    said = f"{e.device}: {p.method}{f', {p.chunk} products a chunk' if p.chunk else ''} ({p.confidence})"
    return said + f"\n{p.fraction} bits are kept below the largest exponent, which is {p.floor} at least" * bool(p.chunk)


def far_off(off: Fraction) -> str:
    """A signed distance in ULPs."""
    return f"{float(off):+.2f}" if abs(off) < 10**6 else f"{'+' * (off > 0)}{decimal(off, 3)}"


def tail(e: ElementSum) -> str:
    """The exact sum beside the result, and what makes the difference."""
    exact, off = e.exact, ulps_off(e.dtype, e.bits, e.exact)
    far = "" if off is None else f"; the result is {f'{far_off(off)} ULP from it' if off else 'exact'}"
    shown = decimal(exact, 9) + f" = {shortened(hexed(exact))}" * (e.dtype.is_float and exact == exact)
    return "\n".join([f"exact sum {shown}{far}", *(loss_lines(e.losses, last_place(e.dtype, e.bits)) if e.losses else ())])


def loss_lines(losses: Sequence[Loss], unit: Fraction) -> list[str]:
    """Lines of a table: how much each part is, also in ULP, and what makes it. unit: of the result's last place."""
    rows = ((signed(x.value), f"{signed(x.value / unit, 4)} ULP", x.said) for x in losses)
    return ["  " + line for line in text_table(("", "", ""), rows)[1:]]


def text(e: ElementSum, steps: Sequence[int] | None = None) -> str:
    """The record as text. steps: those that are shown in full; default: all if there are few, else the one that lost most."""
    out = [head(e)]
    if len(e.steps) > FEW:
        out += ["", *text_table(OVERVIEW, _shortened_overview(e))]
    shown = steps if steps is not None else [*range(len(e.steps))] if len(e.steps) <= FEW else chosen(e)
    for n in shown:
        before, after = ends(e, e.steps[n])
        out += ["", f"step {n}: {before}", *text_table(*table(e, e.steps[n])), after]
    return "\n".join([*out, "", tail(e)])


def html(e: ElementSum) -> str:
    """The record as an HTML section: every step, in full where it is opened."""
    parts = [tag("h4", head(e)), html_table(OVERVIEW, overview(e))]
    for n, s in enumerate(e.steps):
        before, after = ends(e, s)
        inside = html_table(*table(e, s)) + tag("p", after)
        parts.append(f"<details>{tag('summary', f'step {n}: {before}')}{inside}</details>")
    return f"<section>{''.join(parts)}{tag('p', tail(e))}</section>"
