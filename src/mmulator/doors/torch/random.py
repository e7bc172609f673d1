"""Random numbers of cuda: its generators, and the operators that draw.

A GPU with as many multiprocessors draws the same numbers from the seed, bit for bit (philox.py; checked beside an H100 with
tests/doors/programs/torch_random.py): uniform and integer numbers, bernoulli, dropout and geometric of all types, normal and
exponential of float32, float16 and bfloat16. In float64, normal and exponential come from the same 64 bits, but by the host's
logarithm and sine. All else (randperm, multinomial, cauchy, log_normal, poisson and others) is drawn by the CPU:
reproducibly, from the generator's seed and place, but not as a GPU does.
"""

from __future__ import annotations

import ctypes
import secrets
import struct
import weakref
from typing import Any

import numpy as np
import torch

from mmulator.doors.torch import dispatch, philox
from mmulator.doors.torch.kernels import kernel

_Plain: Any = torch._C.Generator
CUDA = torch.device("cuda", 0)
_MASK = (1 << 64) - 1


def _wrong_device(wanted: str, found: str) -> RuntimeError:
    return RuntimeError(f"Expected a '{wanted}' device type for generator but found '{found}'")


class _Kind(type(_Plain)):  # type: ignore[misc]
    """The class of generators: instances of torch's are instances; a new one is of the device that it is asked for."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Plain)

    def __call__(cls, device: Any = "cpu") -> Any:
        wanted = torch.device(device)
        if wanted.type != "cuda":
            return _Plain(wanted)
        dispatch.host(wanted)
        made = type.__call__(cls, dispatch.CPU)
        _say_cuda(made)
        _known[made._cdata] = made
        return made


class Generator(_Plain, metaclass=_Kind):
    """A generator of cuda:0: a seed, and the place of each thread's sequence. Methods are torch.Generator's."""

    _seed, _place = 67280421310721, 0  # torch's default seed

    def manual_seed(self, seed: int) -> Any:
        self._seed, self._place = int(seed) & _MASK, 0
        return self

    def seed(self) -> int:
        self.manual_seed(secrets.randbits(53))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        return self._place

    def set_offset(self, offset: int) -> None:
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self._place = int(offset)

    def get_state(self) -> torch.Tensor:
        with torch._C.DisableTorchFunction():
            return torch.frombuffer(bytearray(struct.pack("<QQ", self._seed, self._place)), dtype=torch.uint8).clone()

    def set_state(self, state: torch.Tensor) -> Any:
        data = bytes(state.tolist())
        if len(data) not in (8, 16):
            raise RuntimeError("RNG state is wrong size")
        self._seed, self._place = struct.unpack("<QQ", data.ljust(16, b"\0"))
        return self

    def clone_state(self) -> Any:
        made = Generator("cuda")
        made._seed, made._place = self._seed, self._place
        return made

    def graphsafe_get_state(self) -> Any:
        return self.clone_state()

    def graphsafe_set_state(self, other: Any) -> Any:
        self._seed, self._place = other._seed, other._place
        return self

    def take(self, draws: int) -> tuple[int, int]:
        """(seed, place) of a kernel that draws `draws` times in each thread."""
        found = self._seed, self._place
        self._place += draws + -draws % 4
        return found


Generator.__name__ = Generator.__qualname__ = "Generator"
Generator.__module__ = "torch"
default: Any = None
_known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()  # torch gives kernels another object


def _say_cuda(generator: Any) -> None:
    """Make the C++ object of a generator say that it is of cuda, so that operators on the CPU refuse it."""
    keys = {d: torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, d)).raw_repr() for d in ("CPU", "CUDA")}
    for at in range(generator._cdata + 16, generator._cdata + 128, 8):
        device, word = ctypes.c_uint16.from_address(at - 8), ctypes.c_uint64.from_address(at)
        if word.value == keys["CPU"] and device.value == 0xFF00:
            device.value, word.value = 1, keys["CUDA"]
            return


def install() -> None:
    global default
    torch.Generator = Generator
    default = Generator("cuda")
    default.manual_seed(torch.initial_seed())
    torch.cuda.default_generators = (default,)
    dispatch.generator_for = _host


def _own(generator: Any) -> Any:
    if generator is None:
        return torch.cuda.default_generators[0]
    if not isinstance(generator, _Plain) or generator.device.type != "cuda":
        raise _wrong_device("cuda", str(generator.device.type))
    return _known[generator._cdata]


def _host(generator: Any) -> Any:
    """A generator of the CPU for an operator that draws in its own way."""
    seed, place = _own(generator).take(4)
    made = _Plain()
    made.manual_seed((seed * 0x9E3779B97F4A7C15 + place * 0xBF58476D1CE4E5B9 + 1) & (_MASK >> 1))
    return made


# drawing --------------------------------------------------------------------------------------------------------------
def _resident() -> int:
    properties = torch.cuda.get_device_properties(0)
    return int(properties.multi_processor_count * properties.max_threads_per_multi_processor)


def _device() -> str:
    from mmulator.driver import current

    return current().device.name


def _draw(count: int, generator: Any, kind: Any, each: int) -> Any:
    """Random numbers in a NumPy array.

    count: how many.
    generator: where they come from.
    kind: function that makes numbers of words.
    each: numbers that a thread makes of four words.
    """
    resident = _resident()
    seed, place = _own(generator).take(philox.advance(count, resident, each))
    return philox.spread(count, seed, place, resident, kind)


def _put(self: Any, values: Any) -> Any:
    """Write values into a tensor of cuda, in the order in which its elements lie in memory."""
    target = dispatch.alias(self)
    order = sorted(range(target.dim()), key=lambda n: -target.stride(n))
    target = target.permute(order)
    target.copy_(torch.as_tensor(values).view(target.shape))
    return self


def _uniform(self: Any, generator: Any) -> Any:
    """Numbers above 0, up to 1, for each element of a tensor."""
    if self.dtype == torch.float64:
        return _draw(self.numel(), generator, philox.uniform64, 2)
    return _draw(self.numel(), generator, philox.uniform32, 4)


def _silent(function: Any) -> Any:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_cuda:
            raise _wrong_device("cpu", "cuda")
        with torch._C.DisableTorchFunction():
            return function(self, *args, **kwargs) if self.numel() else self

    return run


@kernel("uniform_")
@_silent
def uniform_(self: Any, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Any:
    if self.dtype.is_complex:
        uniform_(torch.ops.aten.view_as_real(self), low, high, generator=generator)
        return self
    first, last = (torch.tensor(v, dtype=self.dtype) for v in (low, high))
    between, start = (last - first).item(), first.item()
    drawn = _uniform(self, generator)
    if drawn.dtype == np.float32:
        value = torch.as_tensor(philox.fma(drawn, np.float32(between), np.float32(start))).to(self.dtype)
    else:
        value = torch.as_tensor(drawn * between + start)
    value[value == last] = first  # the bound that is left out is the upper one
    return _put(self, value)


@kernel("normal_")
@_silent
def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if self.dtype.is_complex:
        normal_(torch.ops.aten.view_as_real(self), 0.0, std / 2**0.5, generator=generator)
        return self.add_(mean) if mean else self
    if self.dtype == torch.float64:
        return _put(self, _draw(self.numel(), generator, philox.normal64, 2) * std + mean)
    drawn = _draw(self.numel(), generator, philox.normal32(_device()), 4)
    return _put(self, philox.fma(drawn, np.float32(std), np.float32(mean)))


@kernel("bernoulli_.float")
@_silent
def bernoulli_(self: Any, p: float = 0.5, *, generator: Any = None) -> Any:
    drawn = _uniform(self, generator)
    return _put(self, drawn < drawn.dtype.type(p))


@kernel("geometric_")
@_silent
def geometric_(self: Any, p: float, *, generator: Any = None) -> Any:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    drawn = _uniform(self, generator)
    if drawn.dtype == np.float64:
        return _put(self, np.ceil(np.log(drawn) / np.log(1.0 - p)))
    failure = np.float32(1) - np.float32(p)
    log = philox.lg2(np.append(drawn, failure), _device()) * np.float32(0.6931471805599453)
    return _put(self, np.ceil(log[:-1] / log[-1]))


@kernel("exponential_")
@_silent
def exponential_(self: Any, lambd: float = 1.0, *, generator: Any = None) -> Any:
    drawn = _uniform(self, generator)
    kind = drawn.dtype.type
    small = kind(np.finfo(drawn.dtype).eps / 2)
    log = np.log(drawn) if kind is np.float64 else philox.lg2(drawn, _device()) * kind(0.6931471805599453)
    log = np.where(drawn >= kind(1) - small, -small, log)
    return _put(self, kind(-1.0 / kind(lambd)) * log)


# integers -------------------------------------------------------------------------------------------------------------
_MANTISSA = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_WIDE = (torch.int64, torch.float64)


def _integers(self: Any, generator: Any, wide: bool) -> Any:
    return _draw(self.numel(), generator, *((philox.words64, 2) if wide else (philox.words32, 4)))


@kernel("random_")
@_silent
def random_(self: Any, *, generator: Any = None) -> Any:
    drawn = _integers(self, generator, self.dtype in _WIDE)
    if self.dtype == torch.bool:
        return _put(self, (drawn & np.uint64(1)).astype(np.int64))
    most = 1 << _MANTISSA[self.dtype] if self.dtype.is_floating_point else torch.iinfo(self.dtype).max
    return _put(self, (drawn % np.uint64(most + 1)).astype(np.int64))


@kernel("random_.from")
@_silent
def random_from(self: Any, low: int, high: int | None, *, generator: Any = None) -> Any:
    if high is None:
        top = 1 << _MANTISSA[self.dtype] if self.dtype.is_floating_point else torch.iinfo(self.dtype).max
        high = top + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    size = high - low
    drawn = _integers(self, generator, size >= 1 << 28)
    if size > _MASK:
        return _put(self, drawn.view(np.int64))
    return _put(self, (drawn % np.uint64(size) + np.uint64(low & _MASK)).view(np.int64))


@kernel("random_.to")
def random_to(self: Any, to: int, *, generator: Any = None) -> Any:
    return random_from(self, 0, to, generator=generator)


# dropout --------------------------------------------------------------------------------------------------------------
@kernel("native_dropout")
def native_dropout(self: Any, p: float, train: bool | None = None) -> Any:
    """(elements that are kept, scaled; bool tensor of which are kept)"""
    with torch._C.DisableTorchFunction():
        x = dispatch.alias(self)
        if train is False or not self.numel() or p == 0:
            return dispatch.adopt((x.clone(), torch.ones_like(x, dtype=torch.bool)))
        if p == 1:
            return dispatch.adopt((torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)))
        mask = torch.empty_like(x, dtype=torch.bool)
        left = 1.0 - p
        drawn = _dropout_numbers(x, left)
        order = sorted(range(x.dim()), key=lambda n: -mask.stride(n))
        mask.permute(order).copy_(torch.as_tensor(drawn).view(mask.permute(order).shape))
        wide = x if x.dtype == torch.float64 else x.float()
        scale = 1.0 / np.float32(left) if x.dtype != torch.float64 else 1.0 / left
        return dispatch.adopt(((wide * mask * float(scale)).to(x.dtype), mask))


def _dropout_numbers(x: Any, left: float) -> Any:
    """Whether each element is kept, in the order of memory. A thread takes neighbours where these can be read at once."""
    count, resident = x.numel(), _resident()
    width = philox.threads(count, resident)
    seed, place = torch.cuda.default_generators[0].take(philox.advance(count, resident, 4))
    dense = torch.empty_like(x).stride() == x.stride()
    each = next((v for v in (8, 4, 2) if v * x.element_size() <= 16 and dense and not count % v), 1)
    bound = np.float32(left)
    if each == 1:
        return philox.spread(count, seed, place, resident, philox.uniform32) < bound
    rounds = -(-count // (width * each))
    out = np.empty(rounds * width * each, np.bool_).reshape(rounds, width, each)
    sequence = np.arange(width, dtype=np.uint64)
    calls = -(-each // 4)
    for r in range(rounds):
        kept: list[Any] = []
        for n in range(calls):
            kept += philox.uniform32(*philox.philox(seed, place // 4 + r * calls + n, sequence))
        for n in range(each):
            out[r, :, n] = kept[n] < bound
    return out.reshape(-1)[:count]


@kernel("bernoulli_.Tensor")
@_silent
def bernoulli_tensor(self: Any, p: Any, *, generator: Any = None) -> Any:
    seed, place = _own(generator).take(10)
    chances = dispatch.alias(p) if p.is_cuda else p
    chances = chances.broadcast_to(self.size())
    sequence = np.arange(-(-self.numel() // 4), dtype=np.uint64)
    words = np.stack(philox.uniform32(*philox.philox(seed, place // 4, sequence)), 1).reshape(-1)[: self.numel()]
    order = sorted(range(self.dim()), key=lambda n: -self.stride(n))
    numbers = torch.as_tensor(words).view(self.permute(order).shape)
    dispatch.alias(self).permute(order).copy_(numbers <= chances.permute(order))
    return self
