"""`mmulator why`: one element of a matrix product, step by step, on several devices side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mmulator.cli.parser import Json, Option, Positional
from mmulator.host.settings.readers import whole

if TYPE_CHECKING:
    from mmulator.isa.form import Form
    from mmulator.matrix.instruction.why import ElementOnDevices

STEPS = 4  # instructions along k of random matrices


def why(
    instruction: Annotated[list[str], Positional("A name or words, such as mma m16n8k16 bf16.", offer="instruction_words")],
    element: Annotated[str | None, Option("The element of D. Default: the first in which devices differ.", "ROW,COL")] = None,
    devices: Annotated[str | None, Option("Devices or chips, such as sm_80,H100. Default: sm_90.", "D,D...")] = None,
    seed: Annotated[int, Option("Seed of random matrices, where none are given.", "N", read=whole(0))] = 1,
    k: Annotated[int | None, Option("Their extent along k. Default: four instructions.", "N", read=whole(1))] = None,
    a: Annotated[Path | None, Option("A [M, K].", "FILE.npy")] = None,
    b: Annotated[Path | None, Option("B [K, N].", "FILE.npy")] = None,
    c: Annotated[Path | None, Option("C [M, N]. Default: zeros.", "FILE.npy")] = None,
    bounds: Annotated[bool, Option("A rigorous bound of its rounding error, too.")] = False,
    json: Json = False,
) -> None:
    """Show how each device adds up one element of a matrix product: chunks, exponents, the bits that are cut, the rounding.

    The matrices are files, or random numbers in the shape of the instruction.

    Examples:
        mmulator why mma m16n8k16 bf16 --element 3,5 --devices sm_80,sm_90
        mmulator why wgmma m64n128k32 e4m3 f32 --devices sm_90 --k 128
        mmulator why mma m16n8k16 f16 --element 3,5 --bounds
    """
    from mmulator.cli.output import WrongUsage, print_json
    from mmulator.matrix.instruction import why as module
    from mmulator.matrix.instruction.instruction import Instruction

    try:
        row, col = (int(part) for part in (element or "0,0").split(","))
    except ValueError:
        raise WrongUsage(f"--element {element}", hint="a row and a column, as 3,5") from None
    if (a is None) != (b is None):
        raise WrongUsage("--a and --b go together", hint="or leave both out for random matrices")
    i = Instruction.parse(" ".join(instruction))
    more: dict[str, Any] = {}
    if a is not None and b is not None:
        A, B = _array(a), _array(b)
    else:
        A, B, more = random_matrices(i.form, seed, k or STEPS * max(1, i.form.k))
    C = None if c is None else _array(c)
    names = devices.split(",") if devices else None
    apart = module.compare(A, B, i, names, C, **more).why if names and element is None else None
    found = apart or module.why(i, A, B, C, row, col, devices=names, **more)
    rows = _bounds(found) if bounds else {}
    if json:
        print_json("why", {"ok": True, **found.to_dict(), **({"bounds": rows} if bounds else {})})
        return
    print(found)
    if rows:
        from mmulator.base.tables import text_table

        told = [(device, *("not known" if x is None else f"{x:.6g}" for x in row.values())) for device, row in rows.items()]
        print("", *text_table(("device", "error", "bound"), told), sep="\n")


def _bounds(found: ElementOnDevices) -> dict[str, dict[str, float | None]]:
    """The rounding error of an element on each device, and a bound of it."""
    from fractions import Fraction

    from mmulator.observation.tolerance.bounds import bound_of_sum

    rows = {}
    for device, e in found.sums.items():
        got, exact = e.value, e.exact
        error = float(abs(got - exact)) if isinstance(got, Fraction) and isinstance(exact, Fraction) else None
        rows[device] = {"error": error, "bound": bound_of_sum(e)}
    return rows


def _array(path: Path) -> Any:
    from mmulator.host.jobs.inputs import load_arrays

    found = load_arrays(path)
    if isinstance(found, dict):
        from mmulator.base.errors import OperandError

        raise OperandError(f"{path} has several arrays", hint="numpy.save writes one")
    return found


def random_matrices(form: Form, seed: int, k: int) -> tuple[Any, Any, dict[str, Any]]:
    """A [M, K], B [K, N] and scale factors of a form's types: normal numbers, or whole ones of integer types.

    form: the instruction, whose M and N the matrices have.
    seed: of numpy.random.default_rng.
    k: extent along k.
    """
    import numpy as np

    from mmulator.matrix.layouts import sparse
    from mmulator.matrix.numerics.formats import SCALE_OF_ONE, container, from_raw

    rng = np.random.default_rng(seed)

    def drawn(t: Any, *shape: int) -> Any:
        if t.is_float:
            kind = from_raw(t, np.zeros(1, container(t))).dtype
            return rng.standard_normal(shape).astype(kind)
        return from_raw(t, rng.integers(0, 1 << t.bits, shape).astype(container(t)))

    m, n = form.m or 16, form.n or 8  # of tcgen05 the instruction descriptor has them
    A, B = drawn(form.atype, m, k), drawn(form.btype, k, n)
    if form.sparse:
        A = sparse.compress(sparse.prune(A, form), form)
    scales = {}
    if form.block_scale:
        from mmulator.matrix.numerics.profiles import dot_key

        blocks = -(-k // (form.k // dot_key(form).scale_blocks))
        near = rng.integers(-2, 3, (m + n, blocks)) + SCALE_OF_ONE[form.stype.name]
        scales = {"scale_a": near[:m].astype(np.uint8), "scale_b": near[m:].T.astype(np.uint8)}
    return A, B, scales
