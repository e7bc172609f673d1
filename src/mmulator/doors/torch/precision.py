"""Operators that a GPU computes more exactly than the CPU's kernels: mostly f16 and bf16 in f32, rounding once at the end.

torch's kernels for CUDA compute in `opmath_t` or `acc_type`, which is f32 for both. Most of the CPU's do; those below sum in
bf16, or round on the way, with errors of up to hundreds of units in the last place. So they are run on f32 copies. Operators that
round on the way on a GPU, too (sigmoid_backward, mse_loss), are not among them; steps.py has those that take other steps there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mmulator.doors.torch import dispatch

_NARROW = frozenset((torch.float16, torch.bfloat16))
_WIDE = torch.float32
_Tensor = torch.Tensor


def _always(values: list[Any], named: dict[str, Any]) -> bool:
    return True


def _scaled(values: list[Any], named: dict[str, Any]) -> bool:
    """Whether a number is among the operands, which a GPU does not round to the tensors' type."""
    return named.get("alpha", 1) != 1 or any(not isinstance(v, _Tensor) or v.dim() == 0 for v in values[:2])


def _accumulating(values: list[Any], named: dict[str, Any]) -> bool:
    return bool(values[3] if len(values) > 3 else named.get("accumulate", False))


@dataclass(frozen=True)
class PrecisionRule:
    """How an operator runs on wider copies.

    results: for each result the number of the argument whose type it has, None for f32; one number is for all.
    writes: arguments that are written to although the schema does not say so.
    when: tells for which arguments the rule holds.
    """

    results: tuple[int | None, ...] | int = 0
    writes: tuple[int, ...] = ()
    when: Callable[[list[Any], dict[str, Any]], bool] = _always


_BATCH = PrecisionRule((0, None, None), (3, 4))
RULES: dict[str, PrecisionRule] = {
    "native_layer_norm": PrecisionRule((0, None, None)),
    "native_layer_norm_backward": PrecisionRule((1, 5, 6)),
    "native_group_norm_backward": PrecisionRule((1, 4, 4)),
    "native_batch_norm": _BATCH, "_native_batch_norm_legit": _BATCH,
    "_native_batch_norm_legit.no_stats": PrecisionRule((0, None, None)),
    "native_batch_norm_backward": PrecisionRule((1, 2, 2)),
    "embedding_dense_backward": PrecisionRule(), "prod": PrecisionRule(), "prod.dim_int": PrecisionRule(),
    "nll_loss_forward": PrecisionRule((0, 0)), "nll_loss2d_forward": PrecisionRule((0, 0)),
    "glu_backward": PrecisionRule(), "log_sigmoid_backward": PrecisionRule(),
    "_index_put_impl_": PrecisionRule(when=_accumulating),
    "add.Tensor": PrecisionRule(when=_scaled), "add_.Tensor": PrecisionRule(when=_scaled), "add.out": PrecisionRule(when=_scaled),
    "sub.Tensor": PrecisionRule(when=_scaled), "sub_.Tensor": PrecisionRule(when=_scaled), "sub.out": PrecisionRule(when=_scaled),
    "rsub.Scalar": PrecisionRule(), "rsub.Tensor": PrecisionRule(when=_scaled),
    "logit": PrecisionRule(), "logit_": PrecisionRule(),
    "logit_backward": PrecisionRule(),
}  # fmt: skip
SOFTMAX_BACKWARD = ("_softmax_backward_data", "_log_softmax_backward_data")


def _narrow(value: Any) -> bool:
    return isinstance(value, _Tensor) and value.dtype in _NARROW


def widen(value: Any) -> Any:
    """A tensor of f16 or bf16 as f32; any other value stays."""
    if isinstance(value, (list, tuple)):
        return [widen(v) for v in value]
    return value.to(_WIDE) if _narrow(value) else value


def narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, _Tensor) and value.dtype == _WIDE and dtype in _NARROW else value


class WideOperator(dispatch.Operator):
    """An operator's kernel for tensors of cuda that computes in f32 where a GPU does."""

    def __init__(self, op: torch._ops.OpOverload, rule: PrecisionRule) -> None:
        super().__init__(op)
        self.rule, plain, with_numbers = rule, self.run, self.with_numbers
        self.run, self.with_numbers = partial(self.run_wide, plain), partial(self.run_wide, with_numbers)
        self.kept = frozenset((*self.written, *rule.writes))
        self.names = [a.name for a in op._schema.arguments]

    def run_wide(self, plain: dispatch.Kernel, keys: Any, *values: Any, **named: Any) -> Any:
        """Run the operator on CPU tensors. plain: its kernel."""
        given = list(values)
        if not any(map(_narrow, (*given, *named.values()))) or not self.rule.when(given, named):
            return plain(keys, *values, **named)
        wide, wide_named = [widen(v) for v in given], {name: widen(v) for name, v in named.items()}
        result = plain(keys, *wide, **wide_named)
        targets: dict[int, Any] = {}
        for n in self.kept:
            own: Any
            made: Any
            own, made = (given[n], wide[n]) if n < len(given) else (named.get(self.names[n]), wide_named.get(self.names[n]))
            if own is not made:
                if own.size() != made.size():
                    own.resize_(made.size())
                own.copy_(made)
                targets[id(made)] = own
        if isinstance(result, _Tensor):
            return targets.get(id(result)) if id(result) in targets else self.rounded(result, 0, given)
        if isinstance(result, (tuple, list)):
            return tuple(targets[id(r)] if id(r) in targets else self.rounded(r, n, given) for n, r in enumerate(result))
        return result

    def rounded(self, result: Any, number: int, given: list[Any]) -> Any:
        of = self.rule.results if isinstance(self.rule.results, int) else self.rule.results[number]
        if of is None or not isinstance(given[of], _Tensor):
            return result
        mixed = not given[of].is_floating_point() and len(given) > 1
        return narrow(result, torch.result_type(given[0], given[1]) if mixed else given[of].dtype)


class SoftmaxBackward(dispatch.Operator):
    """Backward of softmax and log_softmax; the last argument is the type that the input had."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        super().__init__(op)
        self.plain, self.run = self.run, self.run_wide

    def run_wide(self, keys: Any, grad: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
        wide = _WIDE if input_dtype in _NARROW else input_dtype
        return narrow(self.plain(keys, widen(grad), widen(output), dim, wide), input_dtype)


def _of(rule: PrecisionRule) -> Maker:
    return lambda op: WideOperator(op, rule)


Maker = Callable[[torch._ops.OpOverload], dispatch.Operator]


def makers() -> dict[str, Maker]:
    """Makers of operators' kernels by the operator's name, without the library's."""
    made: dict[str, Maker] = {name: _of(rule) for name, rule in RULES.items()}
    return made | dict.fromkeys(SOFTMAX_BACKWARD, SoftmaxBackward)


def kernels() -> dict[str, Callable[..., Any]]:
    """Kernels by the names of operators."""
    names = {"aten::" + name: make for name, make in makers().items()}
    return {name: dispatch.kernel(name, make) for name, make in names.items() if torch._C._dispatch_has_kernel(name)}
