"""Operators of torch on tensors of the device cuda:0: the CPU's kernels run on their memory.

torch's dispatcher calls `Operator` (Python) for each operator of a tensor whose device is `cuda`. It gives the CPU's kernel
aliases of the arguments that say they are CPU tensors, and makes results say that they are of `cuda`. Everything above
the dispatcher's lowest layer (autograd, autocast, modes, subclasses, views) is torch's own.
"""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from mmulator.base.errors import UnsupportedError
from mmulator.doors.torch import objects
from mmulator.host.driver.streams import ordering

Kernel = Callable[..., Any]
CPU, KEYS = objects.CPU, objects.KEYS
_Tensor, _Device = torch.Tensor, torch.device
_storage_of = torch._C.TensorBase.untyped_storage
_address_of = torch._C.StorageBase.data_ptr
_as_strided = torch.ops.aten.as_strided.default._handle.redispatch_boxed
_empty = torch.ops.aten.empty.memory_format._handle.redispatch_boxed
_set = torch.ops.aten.set_.source_Storage_storage_offset._handle.redispatch_boxed
_users_of = torch._C._storage_Use_Count
_ONE_TENSOR = 2  # users of a storage that one tensor and its Python object have
_functions_are_watched = torch._C._len_torch_function_stack

# aliases ------------------------------------------------------------------------------------------------------------------
_MOST = 4096  # memories, and tensors of them, whose CPU twin is kept
_twins: dict[tuple[int, int], torch.UntypedStorage] = {}
_bases: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
_known: dict[tuple[Any, ...], torch.Tensor] = {}


def _twin(address: int, size: int) -> torch.UntypedStorage:
    """A CPU storage over memory that it does not own. It only says where bytes are, so it cannot become stale. There is one for
    each memory, so that torch sees which arguments overlap.
    """
    found = _twins.get((address, size))
    if found is None:
        if len(_twins) >= _MOST:
            for kept in (_twins, _bases, _known):
                kept.clear()
        memory = (ctypes.c_char * size).from_address(address) if size else ctypes.create_string_buffer(1)
        made = torch.frombuffer(memory, dtype=torch.uint8)  # cannot be resized, which tells it from results of operators
        found = _twins[address, size] = _storage_of(made)
    return found


def base(address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """A CPU tensor of one dimension over all the memory at an address."""
    found = _bases.get((address, size, dtype))
    if found is None:
        found = _empty(KEYS, [0], dtype=dtype, device=CPU)
        _set(KEYS, found, _twin(address, size), 0, [size // dtype.itemsize], [1])
        _bases[address, size, dtype] = found
    return found


def alias(tensor: torch.Tensor, own: bool = True) -> torch.Tensor:
    """A CPU tensor over the memory of a tensor of cuda, as long as that lives. Tensors without memory share none.

    own: the alias is used by nobody else, so that it may get another shape.
    """
    storage = _storage_of(tensor)
    key = (
        _address_of(storage), storage.nbytes(), tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset(),
        tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip
    own = own or not key[1]
    if not own and (found := _known.get(key)) is not None:
        return found
    address, size, dtype, shape, stride, offset, conj, neg = key
    made = _as_strided(KEYS, base(address, size, dtype), shape, stride, offset)
    if conj:
        torch._C._set_conj(made, True)
    if neg:
        torch._C._set_neg(made, True)
    if not own:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = made
    return made


def _aliases(values: Any, seen: list[torch.Tensor], others: list[torch.Tensor], own: bool) -> list[Any]:
    """Aliases of arguments, one by one.

    values: the arguments.
    seen: receives the tensors of cuda.
    others: receives the CPU's.
    own: the aliases may get another shape.
    """
    out: list[Any] = []
    for v in values:
        if isinstance(v, _Tensor):
            if v.is_cuda:
                seen.append(v)
                v = alias(v, own)
            else:
                others.append(v)
        elif isinstance(v, (list, tuple)):
            if v and not isinstance(v[0], (int, float)):
                v = _aliases(v, seen, others, own)
        elif isinstance(v, _Device):
            v = host(v)
        out.append(v)
    return out


def host(device: torch.device) -> torch.device:
    """The device that an operator is run on. Raises torch's error for a second GPU."""
    if device.type != "cuda":
        return device
    if device.index not in (None, 0):
        raise _no_such_device()
    return CPU


def _no_such_device() -> Exception:
    return getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: invalid device ordinal")


# results ------------------------------------------------------------------------------------------------------------------
def adopt(result: Any, given: Sequence[torch.Tensor] = ()) -> Any:
    """Results of a CPU operator as results of cuda: new memory changes its device. given: tensors of cuda that they may be
    views of.
    """
    if isinstance(result, _Tensor):
        if not objects.is_dense(result):
            if result.layout == torch.sparse_coo and sparse_result is not None:
                return sparse_result(result, given)
            check_layout(result)
        storage = _storage_of(result)
        if storage.resizable():
            objects.to_cuda(result, storage)
            if ordering:
                uses.born(storage)
            return result
        return _view_of(result, storage, given)
    if isinstance(result, (tuple, list)):
        return type(result)([adopt(r, given) for r in result])
    return result


def check_layout(tensor: torch.Tensor) -> None:
    """Raise UnsupportedError for a tensor that is not simply memory with strides."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        what = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise UnsupportedError(f"a {what} tensor on cuda is not supported", hint="keep it on the CPU")


def _view_of(result: torch.Tensor, storage: torch.UntypedStorage, given: Sequence[torch.Tensor]) -> torch.Tensor:
    address = _address_of(storage)
    for tensor in given:
        if _address_of(_storage_of(tensor)) == address:
            if (tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()) == (
                result.dtype, result.size(), result.stride(), result.storage_offset(),
            ):  # fmt: skip
                return tensor
            return _as_strided(KEYS, tensor, result.size(), result.stride(), result.storage_offset())
    made = empty(result.size(), result.dtype)  # memory of constants, or of another library
    alias(made).copy_(result)
    return made


def out_of_memory(error: RuntimeError) -> RuntimeError:
    """The error as CUDA's allocator would raise it, if it is about memory: programs catch that, and try with less."""
    found = re.search(r"allocate memory: you tried to allocate (\d+) bytes", str(error))
    if found is None or isinstance(error, torch.OutOfMemoryError):
        return error
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {int(found[1]) / 2**30:.2f} GiB. Tensors of cuda lie in the memory of this "
        "machine, which has not so much left."
    )


def empty(size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A new tensor of cuda."""
    return adopt(_empty(KEYS, size, dtype=dtype, device=CPU))


def resize(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int] | None = None) -> torch.Tensor:
    """Give a tensor of cuda another shape, and its storage more bytes where it is too small."""
    if stride is None:
        stride, step = [0] * len(size), 1
        for n in reversed(range(len(size))):
            stride[n] = step
            step *= max(size[n], 1)
    last = 0 if 0 in size else sum((n - 1) * s for n, s in zip(size, stride)) + 1
    offset, storage = tensor.storage_offset(), _storage_of(tensor)
    needed = (offset + last) * tensor.dtype.itemsize if last else 0
    if storage.nbytes() < needed:
        objects.resize_storage(storage, needed)
    return _set(KEYS, tensor, storage, offset, size, stride)


# operators ----------------------------------------------------------------------------------------------------------------
# Operators that CUDA's kernels run with some arguments on the CPU; of indexing, the indices.
INDEXING = frozenset(
    "aten::" + name
    for name in (
        "index.Tensor", "index.Tensor_out", "index_put_", "index_put", "index_put.out", "_index_put_impl_",
        "_unsafe_index.Tensor", "_unsafe_index_put",
    )
)  # fmt: skip
MIXED = frozenset(
    "aten::" + name
    for name in (
        "copy_", "copy", "_pack_padded_sequence", "is_set_to", "_foreach_addcdiv.Tensor", "_foreach_addcdiv_.Tensor",
        "_foreach_addcmul.Tensor", "_foreach_addcmul_.Tensor", "_foreach_copy_",
    )
)  # fmt: skip
# Operators that torch composes of others, or of functions, some of which exist only for devices it was built for ("DispatchStub:
# missing kernel for cuda"). tests/doors/programs/torch_calls.py calls every operator, and finds those that this table lacks.
COMPOSITE = frozenset("aten::" + name for name in (
    "copy_", "convolution", "_convolution", "convolution_backward", "kaiser_window", "kaiser_window.periodic",
    "kaiser_window.beta", "kaiser_window.out", "kaiser_window.periodic_out", "kaiser_window.beta_out", "conj_physical_",
    "mode.values",
))  # fmt: skip


NUMBERS = frozenset((int, float, bool, complex))


# Messages of the CPU's kernels about a type that they do not have.
REFUSED_TYPE = re.compile(r"not implemented for '(\w+)'|doesn't support tensors of type: (\w+)")
# Called then, with the operator, the call's arguments and torch's name of the type. Set by retyped.py.
retyped: Callable[[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any], str], Any] | None = None



def recorded(name: str, run: Kernel) -> Kernel:
    """The kernel of an operator, as captures of graphs record it. device.py puts that of cuda_graphs.py in its place."""
    return run


# What operators use on which stream, in a sanitized program: uses.py, which device.py puts here.
uses: Any = None

# The CPU's generator that an operator draws from, given the program's. Set by random.py.
generator_for: Callable[[Any], Any] | None = None

# Makes a sparse result of the CPU one of cuda, given the tensors that its parts may be views of. Set by device.py.
sparse_result: Callable[[torch.Tensor, Sequence[torch.Tensor]], torch.Tensor] | None = None


class Operator:
    """One operator's kernel for tensors of cuda."""

    def __init__(self, op: torch._ops.OpOverload) -> None:
        self.op, self.name, self.handle = op, op.name(), op._handle
        schema = op._schema
        self.run = op._handle.redispatch_boxed
        # A number in place of a tensor: some operators take it, others have an overload that does.
        takes = torch._C._should_allow_numbers_as_tensors(op._opname)
        whole = op._op if takes else op._overloadpacket
        self.with_numbers = lambda keys, *args, **kwargs: whole(*args, **kwargs)
        self.slots = [n for n, a in enumerate(schema.arguments) if str(a.type) == "Tensor"]
        self.tensors = len(self.slots)
        writes = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
        self.written = [n for n, w in enumerate(writes) if w]
        self.outs = [(n, a.name) for n, a in enumerate(schema.arguments) if a.is_out]
        names = [a.name for a in schema.arguments]
        returns = [r.alias_info for r in schema.returns]
        self.views = any(i is not None and not i.is_write for i in returns)
        self.returned: list[tuple[int, str]] = []  # which argument each result is
        for info in returns:
            if info is not None and info.is_write:
                at = next(
                    n for n, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.before_set == info.before_set
                )
                self.returned.append((at, names[at]))
        self.mutates = bool(self.written)
        self.single = len(schema.returns) == 1
        self.mixed, self.indexes = self.name in MIXED, self.name in INDEXING
        self.draws = next((n for n, a in enumerate(schema.arguments) if a.name == "generator"), None)
        self.known = torch._C._dispatch_has_kernel_for_dispatch_key(
            self.name, "CPU"
        ) or torch._C._dispatch_has_computed_kernel_for_dispatch_key(self.name, "CPU")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if ordering:
                return self.ordered(args, kwargs)
            if _functions_are_watched():
                with torch._C.DisableTorchFunction():
                    return self.call(args, kwargs)
            return self.call(args, kwargs)
        except RuntimeError as error:
            if retyped is not None and (refused := REFUSED_TYPE.search(str(error))):
                return retyped(self.op, args, kwargs, refused[1] or refused[2])
            raise out_of_memory(error) from None

    def ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run it in a sanitized program, whose operations are looked at for their order."""
        with torch._C.DisableTorchFunction():
            found = self.call(args, kwargs)
            uses.done(self, args, kwargs, found)
        return found

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.views:
            return self.run(KEYS, *args, **kwargs)
        if not self.known:
            raise UnsupportedError(f"{self.name} on cuda is not supported: torch has no kernel of it for the CPU")
        given: list[torch.Tensor] = []
        others: list[torch.Tensor] = []
        own = bool(self.outs)
        values = _aliases(args, given, others, own)
        named = dict(zip(kwargs, _aliases(kwargs.values(), given, others, own))) if kwargs else kwargs
        if others:
            self.check_devices(args, given, others)
        if self.draws is not None and generator_for is not None:
            if others and not given:
                raise RuntimeError("Expected a 'cpu' device type for generator but found 'cuda'")
            if self.draws < len(values):
                values[self.draws] = generator_for(values[self.draws])
            else:
                named = {**named, "generator": generator_for(named.get("generator"))}
        numbers = len(given) + len(others) < self.tensors and any(
            type(values[n]) in NUMBERS for n in self.slots if n < len(values)
        )
        run = self.with_numbers if numbers else self.run
        if self.outs:
            return self.into(run, args, kwargs, values, named)
        result = run(KEYS, *values, **named)
        if self.returned:
            found = [args[n] if n < len(args) else kwargs[name] for n, name in self.returned]
            if self.single:
                return found[0]
            if len(found) == len(result):
                return tuple(found)
            return tuple(found) + tuple(adopt(r, given) for r in result[len(found) :])
        return adopt(result, given)

    def check_devices(self, args: Any, given: list[torch.Tensor], others: list[torch.Tensor]) -> None:
        """Raise torch's error for tensors of two devices, where CUDA's kernels do not take them."""
        if self.indexes:
            if given and not args[0].is_cuda:
                raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        elif given and not self.mixed and (any(t.dim() for t in others) or self.writes_elsewhere(args, others)):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and {others[0].device}! (when checking argument in method wrapper_CUDA_{self.name.partition('::')[2]})"
            )

    def writes_elsewhere(self, args: Any, others: list[torch.Tensor]) -> bool:
        return any(n < len(args) and any(args[n] is t for t in others) for n in self.written)

    def into(self, run: Kernel, args: Any, kwargs: Any, values: list[Any], named: dict[str, Any]) -> Any:
        """Run an operator with `out=` arguments, which it may give another shape.

        run: the CPU's kernel.
        args, kwargs: the program's arguments.
        values, named: their aliases.
        """
        targets: list[tuple[torch.Tensor, torch.Tensor]] = []
        for n, name in self.outs:
            own, other = (args[n], values[n]) if n < len(args) else (kwargs[name], named[name])
            many = isinstance(own, (list, tuple))
            fresh = [_fresh(t, a) for t, a in zip(own, other)] if many else _fresh(own, other)
            if n < len(args):
                values[n] = fresh
            else:
                named[name] = fresh
            targets += list(zip(own, fresh)) if many else [(own, fresh)]
        try:
            run(KEYS, *values, **named)
        except RuntimeError as error:
            if "not resizable" not in str(error):
                raise
            targets = [(t, _empty(KEYS, [0], dtype=a.dtype, device=CPU)) for t, a in targets]
            rest = iter(targets)
            for n, name in self.outs:
                own = args[n] if n < len(args) else kwargs[name]
                made = [next(rest)[1] for _ in own] if isinstance(own, (list, tuple)) else next(rest)[1]
                if n < len(args):
                    values[n] = made
                else:
                    named[name] = made
            run(KEYS, *values, **named)
        for target, written in targets:
            _settle(target, written)
        found = [args[n] if n < len(args) else kwargs[name] for n, name in self.returned]
        return (found[0] if self.single else tuple(found)) if found else None


def _fresh(own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The memory to write to: the alias, or new memory for a tensor that has none yet."""
    return _empty(KEYS, [0], dtype=own.dtype, device=CPU) if own.is_cuda and own.numel() == 0 else other


def _settle(target: torch.Tensor, written: torch.Tensor) -> None:
    """Make a result that lies in memory of its own, or has another shape, the contents of the program's tensor."""
    if not target.is_cuda:
        return
    own, made = _storage_of(target), _storage_of(written)
    if not own.nbytes() and made.nbytes() and _users_of(own._cdata) == _ONE_TENSOR and made.resizable():
        if ordering:
            uses.born(made)
        objects.to_cuda(written, made)  # no other tensor sees that the memory is another one
        _set(KEYS, target, made, written.storage_offset(), written.size(), written.stride())
        return
    if target.size() != written.size() or target.stride() != written.stride():
        resize(target, written.size(), written.stride())
    if _address_of(_storage_of(target)) != _address_of(_storage_of(written)):
        alias(target).copy_(written)


_operators: dict[str, Operator] = {}


def find(name: str, overload: str) -> torch._ops.OpOverload:
    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base)
    return getattr(packet, overload or "default")


def kernel(full: str, make: Callable[[torch._ops.OpOverload], Operator] = Operator) -> Kernel:
    """A kernel for an operator that is looked up when it is first called. make: makes the kernel of the operator."""
    made: list[Operator] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        if not made:
            name, _, overload = full.partition(".")
            made.append(make(find(name, overload)))
        return made[0](*args, **kwargs)

    return run


def fallback(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The kernel of an operator that has none registered."""
    found = _operators.get(name := op.name())
    if found is None:
        found = _operators[name] = Operator(op)
    return found(*args, **kwargs)


# Kinds of tensors that cuda does not have here.
REFUSED = {
    "SparseCsrCUDA": "sparse compressed", "QuantizedCUDA": "quantized", "NestedTensorCUDA": "nested",
}  # fmt: skip


def _refusal(name: str, what: str) -> Kernel:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{name}: a {what} tensor on cuda is not supported", hint="keep it on the CPU")

    return refuse


def _refuser(what: str) -> Kernel:
    return lambda op, *args, **kwargs: _refusal(op.name(), what)()


def register(special: dict[str, Kernel], composed: dict[str, dict[str, Kernel]]) -> list[torch.library.Library]:
    """Register kernels for CUDA's dispatch key, of all operators that the CPU has kernels for.

    special: kernels that do more than run the CPU's.
    composed: kernels by dispatch key, of operators that torch composes of others.
    """
    everything = torch.library.Library("_", "IMPL", "CUDA")
    everything.fallback(lambda op, *args, **kwargs: recorded(op.name(), partial(fallback, op))(*args, **kwargs), "CUDA")
    kept = [everything]
    own = torch.library.Library("aten", "IMPL", "CUDA")
    implement = own.m.impl
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    of_cuda = registered("CUDA")
    names = {n for n in (*registered("CPU"), *of_cuda) if n.startswith("aten::")}
    with warnings.catch_warnings():  # torch says so where it has kernels for CUDA
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel", UserWarning)
        for full in {*names, *special, *COMPOSITE}:
            implement(full[6:], "CUDA", recorded(full, special.get(full) or kernel(full)))
        for key, what in REFUSED.items():
            library = torch.library.Library("_", "IMPL", key)
            library.fallback(_refuser(what), key)
            of_key = torch.library.Library("aten", "IMPL", key)
            kept += [library, of_key]
            for full in registered(key):
                if full.startswith("aten::"):
                    of_key.m.impl(full[6:], key, _refusal(full, what))
        for key, kernels in composed.items():
            kept.append(of_key := torch.library.Library("aten", "IMPL", key))
            for name, made in kernels.items():
                of_key.m.impl(name, key, made)
    return [*kept, own]
