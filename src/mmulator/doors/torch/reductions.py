"""Sums, means, softmax and norms of rows in the order of torch's kernels for CUDA: what a thread reads, how threads add up.

On an NVIDIA H200 (torch 2.11, CUDA 13.0) all results that were compared had these bits (tests/doors/test_torch_steps.py). The
formulas take tensors of the CPU, and return None where the order is not known. The functions before them take and give f32
arrays, of rows that lie together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mmulator.doors.torch import elementary
from mmulator.doors.torch.elementary import FLOATS, single, tensor
from mmulator.host.driver import current
from mmulator.matrix.twin.sfu import functions
from mmulator.matrix.twin.sfu.arrays import evaluate

_WARP, _MOST_THREADS, _BLOCK = 32, 512, 1024
_PIECE = 1 << 18  # elements whose copies stay in the processor's caches
_IN_WARP = 2048  # elements of a row that one warp makes a softmax of
_REGISTERS, _SHARED = 9, 49152  # elements of a thread, and bytes of a block, that keep a row


def _power(n: int) -> int:
    """The largest power of two that is no more than n."""
    return 1 << max(n, 1).bit_length() - 1


@dataclass(frozen=True)
class Sum:
    """How threads add up: numbers that a sum has, one more element (to the sum itself), and two sums."""

    numbers: int
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]


def _welford(own: Any, x: Any) -> None:
    own[2] += 1
    part = x - own[0]
    own[0] += part / own[2]
    own[1] = functions.function(functions.product)(part, x - own[0], np.ascontiguousarray(own[1]))


def _welford_merged(a: Any, b: Any) -> Any:
    part, count = b[0] - a[0], a[2] + b[2]
    share, product = b[2] / count, functions.function(functions.product)
    made = np.stack((product(part, share, a[0]), product(part * part * a[2], share, a[1] + b[1]), count))
    return np.where(a[2] == 0, b, np.where(b[2] == 0, a, made))


SUM = Sum(1, lambda own, x: np.add(own, x, out=own), np.add)
SQUARES = Sum(1, lambda own, x: np.copyto(own, functions.function(functions.product)(x, x, own[0])), np.add)
WELFORD = Sum(3, _welford, _welford_merged)


def _far(x: Any, of: Sum = SUM) -> Any:
    """The sum over the last dimension, a power of two: the upper half on the lower, until one is left."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = of.merge(x[..., :half], x[..., half:])
    return x[..., 0]


def _listed(x: Any, of: Sum = SUM) -> Any:
    """The sum over the last dimension, one after the other."""
    made = x[..., 0]
    for k in range(1, x.shape[-1]):
        made = of.merge(made, x[..., k])
    return made


def _pieces(rows: int, n: int) -> Iterator[slice]:
    step = max(1, _PIECE // n)
    return (slice(at, at + step) for at in range(0, rows, step))


def _in_turn(x: Any, threads: int, lists: int = 1, of: Sum = SUM, turned: bool = False) -> Any:
    """[numbers, rows, threads, lists]: what each thread adds up of x [rows, n], reading every `threads`-th element. Its k-th one
    is added to list k % lists. turned: x is [n, rows]."""
    rows, n = x.shape[::-1] if turned else x.shape
    made = np.zeros((lists, of.numbers, threads, rows) if turned else (lists, of.numbers, rows, threads), np.float32)
    for k, at in enumerate(range(0, n, threads)):
        part, own = x[at : at + threads] if turned else x[:, at : at + threads], made[k % lists]
        of.add(own[:, : len(part)] if turned else own[..., : part.shape[1]], part)
    return np.moveaxis(made.swapaxes(2, 3) if turned else made, 0, -1)


def _by_vectors(x: Any, threads: int, width: int, shift: int, of: Sum) -> Any:
    """[numbers, rows, threads, width]: as _in_turn, but of vectors; what lies before the first whole one, and behind the last,
    goes to the first of a thread's sums. shift: by how many elements rows begin behind a whole vector."""
    rows, n = x.shape
    flat = np.zeros((of.numbers, rows, threads * width), np.float32)
    made = flat.reshape(of.numbers, rows, threads, width)
    first = -shift % width
    of.add(made[:, :, shift : shift + first, 0], x[:, :first])
    count = (n - first) // width
    vectors = x[:, first : first + count * width]
    for at in range(0, count * width, threads * width):
        part = vectors[:, at : at + threads * width]
        of.add(flat[..., : part.shape[1]], part)
    rest = x[:, first + count * width :]
    of.add(made[:, :, : rest.shape[1], 0], rest)
    return made


def sums(
    x: Any, processors: int, width: int = 4, offset: int = 0, of: Sum = SUM, lists: int = 4, columns: int = 0
) -> Any:  # fmt: skip
    """The sum of each row of x [rows, n], [numbers, rows], by torch's general reduction.

    processors: multiprocessors of the device.
    width: elements of a vector.
    offset: elements between an aligned address and x.
    lists: sums that a thread has, of what it reads in turn.
    columns: rows of x whose first elements lie together in memory, and so on: x is turned. 0: each row lies together.
    """
    rows, n = x.shape
    by_vectors, most, outputs = not columns and n >= 128, _MOST_THREADS, rows
    if columns:
        width = next(w for w in (4, 2, 1) if columns % w == 0)
        most, outputs = most // width, rows // width
    wide, high = (outputs, n) if columns else (n // width if by_vectors else n, rows)
    wide = min(_power(wide), most)
    lanes = min(wide, _WARP)
    warps = min(_power(high), most // lanes)
    lanes, across = min(wide, most // warps), 1
    if columns:
        lanes, across = 1, lanes
    each, blocks, block = -(-n // lanes), 1, 1
    if each >= min(warps * 16, 256):
        block, each = warps, -(-n // (lanes * warps))
        grid, held = -(-outputs // across), processors * (2048 // (lanes * across * warps))
        if each >= 256 and grid <= held:
            blocks = max(min(-(-held // grid), -(-each // 16)), -(-each // 256))
    threads = lanes * block * blocks
    made = np.empty((of.numbers, rows), np.float32)
    for shift in range(width) if by_vectors else (0,):
        which = np.arange(rows)
        if by_vectors:
            which = which[(offset + which * n) % width == shift]
        for piece in _pieces(len(which), n):
            if by_vectors:
                found = _by_vectors(x[which[piece]] if len(which) != rows else x[piece], threads, width, shift, of)
            else:
                found = _in_turn(x.T[:, piece] if columns else x[piece], threads, lists, of, bool(columns))
            found = _far(_far(_listed(found, of).reshape(of.numbers, -1, blocks, block, lanes), of), of)
            if blocks > 1:
                last = np.zeros((*found.shape[:2], lanes * warps), np.float32)
                for start in range(0, blocks, lanes * warps):
                    part = found[..., start : start + lanes * warps]
                    last[..., : part.shape[2]] = of.merge(last[..., : part.shape[2]], part)
                found = _far(_far(last.reshape(*found.shape[:2], warps, lanes), of), of)
            made[:, which[piece]] = found.reshape(of.numbers, -1)
    return made


def _of_block(x: Any) -> Any:
    """The sum of what the threads of a block have, [rows, threads]: of each warp, then of the warps."""
    return _far(_far(x.reshape(len(x), -1, _WARP)))


def _by_block(x: Any, threads: int, width: int, offset: int, whole: bool = False) -> Any:
    """Sums of a block's threads, [rows, threads], which read x [rows, n] by vectors of `width` elements. offset: as sums has it.
    whole: whether rows consist of vectors; otherwise a round of threads that read one element each begins where a row is not
    aligned, and ends where too few are left for all threads."""
    rows, n = x.shape
    made = np.zeros((rows, threads), np.float32)
    for row, own in enumerate(made):
        line, shift = x[row], 0 if whole else (offset + row * n) % width
        if shift:
            own[shift:][: len(line)] += line[: threads - shift]
            line = line[threads - shift :]
        last = len(line) if whole else len(line) - len(line) % (width * threads)
        for at in range(0, last, width * threads):
            part = line[at : min(at + width * threads, last)].reshape(-1, width)
            for k in range(width):
                own[: len(part)] += part[:, k]
        for at in range(last, len(line), threads):
            part = line[at : at + threads]
            own[: len(part)] += part
    return made


def _of_exponentials(x: Any, size: int, offset: int, wider: bool, inner: int) -> Any:
    """The sums of softmax, of exponentials x [rows, n]. size: bytes of an element in memory. offset: as sums has it. wider:
    whether f16 becomes f32, by a kernel of its own. inner: elements in memory from one of a row to the next."""
    n = x.shape[1]
    if inner > 1:
        return _far(_in_turn(x, min(_power(_BLOCK // inner), _power(n)) if inner <= 64 <= n else 1)[0, ..., 0])
    if n <= (_BLOCK if wider else _IN_WARP):
        threads = min(_WARP, 1 << (n - 1).bit_length())
        return _far(_in_turn(x, threads)[0, ..., 0])
    if not wider and -(-n // _BLOCK) <= _REGISTERS:
        return _of_block(_in_turn(x, _BLOCK)[0, ..., 0])
    return _of_block(_by_block(x, _BLOCK, 16 // size, offset, _is_kept(n, size, offset, _BLOCK)))


def _is_kept(n: int, size: int, offset: int, threads: int) -> bool:
    """Whether a block keeps a row in its shared memory, which it reads by whole vectors."""
    return not (n * size % 16 or offset * size % 16) and n < (_SHARED - 4 * threads // _WARP) // size


def softmax(x: Any, logarithm: bool = False, size: int = 4, offset: int = 0, wider: bool = False, inner: int = 1) -> Any:
    """The softmax of each row of x [rows, n], or its logarithm; the rest as _of_exponentials has it."""
    made = np.empty_like(x)
    n = x.shape[1]
    exp, log = functions.function(functions.exp), functions.function(functions.log)
    for piece in _pieces(*x.shape):
        given, out = x[piece], made[piece]
        most = given.max(1, keepdims=True)
        np.subtract(given, most, out=out)
        exponentials = exp(out) if logarithm else exp(out, out=out)
        total = _of_exponentials(exponentials, size, offset + piece.start * n, wider, inner)[:, None]
        if logarithm:
            out -= log(total)
        else:
            out /= total
    return made


def norm(x: Any, weight: Any, bias: Any, epsilon: float, squares: bool = False, aligned: bool = True) -> tuple[Any, Any, Any]:
    """(the layer norm of x [rows, n], means, inverses of deviations). squares: RMS norm, which takes no mean."""
    rows, n = x.shape
    made, means, inverses = np.empty_like(x), np.empty(rows, np.float32), np.empty(rows, np.float32)
    fast = aligned and n % 4 == 0
    threads = 128 if fast else _MOST_THREADS
    each = 4 if fast else 1
    rounds = -(-n // (threads * each))
    more = n // each - (rounds - 1) * threads
    of = functions.moments("moments" if not fast else "squares" if squares else "layer", threads)
    product = functions.function(functions.product)
    for piece in _pieces(rows, n):
        given, out = x[piece], made[piece]
        padded = np.zeros((len(given), rounds * threads * each), np.float32)
        padded[:, :n] = given
        turns = padded.reshape(len(given), rounds, threads, each).swapaxes(2, 3)
        mean, total = of(np.ascontiguousarray(turns).reshape(len(given), rounds * each, threads), more, each)
        variance = total / np.float32(n)
        if squares and not fast:
            variance = product(mean, mean, variance)
        inverse = evaluate("rsqrt", variance + np.float32(epsilon))
        if squares:
            np.multiply(given, inverse[:, None], out=out)
        else:
            np.subtract(given, mean[:, None], out=out)
            out *= inverse[:, None]
        if weight is not None and bias is not None:
            product(out, np.broadcast_to(weight, out.shape), np.broadcast_to(bias, out.shape), out=out)
        elif weight is not None:
            out *= weight
        elif bias is not None:
            out += bias
        means[piece], inverses[piece] = mean, inverse
    return made, means, inverses


# formulas -----------------------------------------------------------------------------------------------------------------
def _totals(x: Any, dims: Any, keep: bool, width: int, of: Sum = SUM, lists: int = 4) -> tuple[Any, list[int]] | None:
    """(sums [numbers, rows] over dimensions, the result's shape), where those that are added up lie one after the other in
    memory, as the last or the first. of, lists: as sums has them."""
    chosen = {d % max(x.dim(), 1) for d in dims} if dims else set(range(x.dim()))
    added = [d for d in range(x.dim()) if d in chosen and x.shape[d] > 1]
    if not x.is_contiguous() or not 0 < x.numel() < 1 << 31:
        return None
    inner = x.shape[added[-1] + 1 :].numel() if added else 1
    n, between = int(np.prod([x.shape[d] for d in added])), range(added[0], added[-1]) if added else ()
    if any(d not in chosen and x.shape[d] > 1 for d in between) or (inner > 1 and x.numel() // n != inner):
        return None
    rows = single(x).reshape(-1, n) if inner == 1 else single(x).reshape(n, inner).T
    made = sums(rows, current().device.multiprocessors, width, x.storage_offset(), of, lists, inner if inner > 1 else 0)
    return made, [1 if d in chosen else size for d, size in enumerate(x.shape) if keep or d not in chosen]


def total(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if x.dtype not in FLOATS or dtype not in (None, x.dtype, torch.float32):
        return None
    found = _totals(x, dims, keepdim, 16 // x.dtype.itemsize)
    return found and tensor(found[0][0], dtype or x.dtype, *found[1])


def mean(x: Any, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if x.dtype not in FLOATS or dtype not in (None, x.dtype):
        return None
    found = _totals(x, dims, keepdim, 16 // x.dtype.itemsize)
    return found and tensor(found[0][0] * (np.float32(found[0].size) / np.float32(x.numel())), x.dtype, *found[1])


def _deviation(root: bool) -> Callable[..., Any]:
    def formula(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        found = _totals(x, dims, keepdim, 2, WELFORD, 2) if x.dtype in FLOATS else None
        if found is None:
            return None
        _, squares, count = found[0]
        made = squares / np.maximum(count - np.float32(1 if correction is None else correction), 0)
        return tensor(np.sqrt(made) if root else made, x.dtype, *found[1])

    return formula


def length(x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The 2-norm."""
    if x.dtype not in FLOATS or order != 2 or dtype not in (None, x.dtype):
        return None
    found = _totals(x, dims, keepdim, 4, SQUARES)
    return found and tensor(np.sqrt(found[0][0]), x.dtype, *found[1])


def logsumexp(x: Any, dims: Any, keepdim: bool = False) -> Any:
    if x.dtype not in FLOATS or not x.numel():
        return None
    exp, log = elementary.FORMULAS["exp"], elementary.FORMULAS["log"]
    most = x.amax(dims, True)
    most = most.masked_fill(most.isinf(), 0)
    made = total(exp(x - most), dims, keepdim)
    return None if made is None else log(made) + most.reshape(made.shape)


def negative_likelihood(x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> Any:
    """nll_loss. reduction: 0 (none), 1 (mean), 2 (sum)."""
    if x.dtype not in FLOATS or x.dim() != 2 or weight is not None or not 0 < len(x) < 1536:
        return None
    threads = max(_WARP, 1 << round(np.log2(max(len(x) // 16, 1))))
    taken, losses = (target != ignored).numpy(), np.zeros((1, len(x)), np.float32)
    losses[0, taken] = -single(x)[taken, target.numpy()[taken]]
    if not reduction:
        return tensor(losses, x.dtype, len(x)), x.new_zeros(())
    made, count = _far(_in_turn(losses, threads)[0, ..., 0]), np.float32(taken.sum())
    return tuple(tensor(np.reshape(v, 1), x.dtype) for v in (made / count if reduction == 1 else made, count))


def _softmax(logarithm: bool) -> Callable[..., Any]:
    def formula(x: Any, dim: int, wider: bool) -> Any:
        dim %= max(x.dim(), 1)
        if x.dtype not in FLOATS or not x.numel():
            return None
        x, n, inner = x.contiguous(), x.shape[dim] if x.dim() else 1, x.shape[dim + 1 :].numel()
        rows = single(x).reshape(-1, n, inner).swapaxes(1, 2)
        made = softmax(np.ascontiguousarray(rows).reshape(-1, n), logarithm, x.dtype.itemsize, x.storage_offset(), wider, inner)
        made = np.ascontiguousarray(made.reshape(rows.shape).swapaxes(1, 2))
        return tensor(made, torch.float32 if wider else x.dtype, *x.shape)

    return formula


def _softmax_back(logarithm: bool) -> Callable[..., Any]:
    def formula(grad: Any, output: Any, dim: int, dtype: Any) -> Any:
        n = grad.shape[dim] if grad.dim() else 1
        if dtype not in FLOATS or {grad.dtype, output.dtype} != {dtype} or not grad.numel() or grad.shape[dim:].numel() > n:
            return None
        terms = grad.contiguous() if logarithm else (grad * output).contiguous()
        rows, factors = single(terms).reshape(-1, n), single(output).reshape(-1, n)
        made, width = np.empty_like(rows), 16 // dtype.itemsize
        exp, product = functions.function(functions.exp), functions.function(functions.product)
        for piece in _pieces(*rows.shape):
            given, factor = rows[piece], exp(factors[piece]) if logarithm else factors[piece]
            if n <= _BLOCK:
                found = _far(_in_turn(given, min(_WARP, 1 << (n - 1).bit_length()))[0, ..., 0])
            else:
                threads = max(1 << (min(n // width, _BLOCK) // 2 - 1).bit_length(), _WARP)
                offset = terms.storage_offset() + piece.start * n
                kept = _is_kept(n, dtype.itemsize, offset, threads)
                found = _by_block(given, threads, width, offset, kept)
                found = _of_block(found) if kept else _listed(_listed(found.reshape(len(found), -1, _WARP)))
            product(-factor, np.broadcast_to(found[:, None], given.shape), given, out=made[piece])
        return tensor(made, dtype, *grad.shape)

    return formula


def _normed(x: Any, shape: Any, weight: Any, bias: Any, epsilon: float, squares: bool) -> Any:
    given = [t for t in (weight, bias) if t is not None]
    n = int(np.prod(shape))
    if x.dtype not in FLOATS or not x.numel() or any(t.dtype != x.dtype for t in given) or n > 1 << 24:
        return None
    if list(x.shape[x.dim() - len(shape) :]) != list(shape):
        return None  # an error that torch's own kernel words
    aligned = all(t.storage_offset() % 4 == 0 for t in (x, *given) if t.is_contiguous())
    gain, shift = (t if t is None else single(t).reshape(-1) for t in (weight, bias))
    made, means, inverses = norm(single(x).reshape(-1, n), gain, shift, epsilon, squares, aligned)
    stats = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    return tensor(made, x.dtype, *x.shape), *(tensor(s, torch.float32, *stats) for s in (means, inverses)[squares:])


def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    return _normed(x, shape, weight, bias, epsilon, False)


def rms_norm(x: Any, shape: Any, weight: Any, epsilon: Any) -> Any:
    return None if epsilon is None else _normed(x, shape, weight, None, epsilon, True)


FORMULAS: dict[str, Callable[..., Any]] = {
    "sum": total, "sum.dim_IntList": total, "sum.IntList_out": total, "mean": mean, "mean.dim": mean, "mean.out": mean,
    "var.correction": _deviation(False), "std.correction": _deviation(True), "linalg_vector_norm": length,
    "logsumexp": logsumexp, "nll_loss_forward": negative_likelihood,
    "_softmax": _softmax(False), "_log_softmax": _softmax(True), "_softmax_backward_data": _softmax_back(False),
    "_log_softmax_backward_data": _softmax_back(True), "native_layer_norm": layer_norm, "_fused_rms_norm": rms_norm,
}  # fmt: skip
# Sums whose order on CUDA is written nowhere here.
OTHERS = (
    "var_mean.correction", "std_mean.correction", "norm.ScalarOpt_dim",
    "cumsum", "logcumsumexp", "prod", "prod.dim_int", "native_group_norm", "native_batch_norm", "nll_loss2d_forward",
    "native_layer_norm_backward",
)  # fmt: skip
WHY = "the order of torch's sums on CUDA is not written here"
