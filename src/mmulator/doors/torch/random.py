"""Random numbers of cuda: its generators, and the operators that draw.

A GPU with as many multiprocessors draws the same numbers from the seed, bit for bit (matrix/twin/philox.py; checked beside an
H100 with tests/doors/programs/torch_random.py): uniform and integer numbers, bernoulli, dropout and geometric of all types,
normal and exponential of float32, float16 and bfloat16. In float64, normal and exponential come from the same 64 bits, but by the
host's logarithm and sine. All else (randperm, multinomial, cauchy, log_normal, poisson and others) is drawn by the CPU:
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

from mmulator.doors.torch import dispatch
from mmulator.doors.torch.kernels import kernel
from mmulator.host.driver import current
from mmulator.matrix.twin import philox

_Plain: Any = torch.Generator
CUDA = torch.device("cuda", 0)
BLOCK = 256  # threads of a block of torch's kernels
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
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # which native code stores itself


def _width(count: int) -> int:
    """Threads of the grid that torch takes for `count` elements."""
    properties = torch.cuda.get_device_properties(0)
    resident = int(properties.multi_processor_count * properties.max_threads_per_multi_processor)
    return BLOCK * max(min(resident // BLOCK, -(-count // BLOCK)), 1)


def _take(generator: Any, count: int, each: int) -> tuple[int, int]:
    """(seed, place) of a kernel of which each thread gets `each` numbers of four draws."""
    found: tuple[int, int] = _own(generator).take(((count - 1) // (_width(count) * each) + 1) * 4)
    return found


def _fill(
    out: int, count: int, kind: str, seed: int, place: int, width: int, stored: str = "", a: float = 1, b: float = 0, c: float = 0
) -> None:
    """philox.fill for the current device. place: in draws."""
    device, threads = current().device.name, torch.get_num_threads()
    philox.fill(out, count, kind, seed, place // 4, width, device, (a, b, c), stored, threads)


def _draw(count: int, generator: Any, kind: str, *numbers: float) -> Any:
    """Random numbers in a NumPy array.

    count: how many.
    generator: where they come from.
    kind: of philox.KINDS.
    numbers: a, b and c of the kind.
    """
    out = np.empty(count, philox.DTYPES[kind])
    _fill(out.ctypes.data, count, kind, *_take(generator, count, philox.EACH[kind]), _width(count), "", *numbers)
    return out


def _in_memory(tensor: Any) -> Any:
    """A tensor of the CPU with the elements of another in the order in which they lie in memory."""
    return tensor.permute(sorted(range(tensor.dim()), key=lambda n: -tensor.stride(n)))


def _put(self: Any, values: Any) -> Any:
    """Write values into a tensor of cuda, in the order in which its elements lie in memory."""
    target = _in_memory(dispatch.alias(self))
    target.copy_(torch.as_tensor(values).view(target.shape))
    return self


def _floats(self: Any, generator: Any, kind: str, *numbers: float) -> Any:
    """Fill a tensor of cuda with numbers of a kind of float32. numbers: a, b and c of the kind."""
    target, count = _in_memory(dispatch.alias(self)), self.numel()
    dtype = self.dtype if self.dtype in _FLOATS else torch.float32
    there = dtype == self.dtype and target.is_contiguous()
    drawn = target if there else torch.empty(target.shape, dtype=dtype, device=dispatch.CPU)
    stored = "" if dtype == torch.float32 else str(dtype).removeprefix("torch.")
    place = _take(generator, count, philox.EACH[kind])
    _fill(drawn.data_ptr(), count, kind, *place, _width(count), stored, *numbers)
    if not there:
        target.copy_(drawn)
    return self


def _uniform(self: Any, generator: Any) -> Any:
    """Numbers above 0, up to 1, for each element of a tensor."""
    return _draw(self.numel(), generator, "uniform64" if self.dtype == torch.float64 else "uniform32")


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
    if self.dtype != torch.float64:
        return _floats(self, generator, "uniform32", between, start, last.item())
    value = _uniform(self, generator) * between + start
    value[value == last.item()] = start  # the bound that is left out is the upper one
    return _put(self, value)


@kernel("normal_")
@_silent
def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if self.dtype.is_complex:
        normal_(torch.ops.aten.view_as_real(self), 0.0, std / 2**0.5, generator=generator)
        return self.add_(mean) if mean else self
    if self.dtype != torch.float64:
        return _floats(self, generator, "normal", std, mean)
    return _put(self, _normal64(self.numel(), generator) * std + mean)


def _normal64(count: int, generator: Any) -> Any:
    """float64 of the standard normal distribution. Its logarithm, sine and cosine are the host's, not the device's."""
    width = _width(count)
    drawn = np.empty((-(-count // (2 * width)), 2, width))
    _fill(drawn.ctypes.data, drawn.size, "uniform64", *_take(generator, count, 2), width)
    radius, angle = np.sqrt(-2.0 * np.log(drawn[:, 0])), np.pi * (2.0 * drawn[:, 1])
    return np.stack((np.sin(angle) * radius, np.cos(angle) * radius), 1).reshape(-1)[:count]


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
    if self.dtype != torch.float64:
        return _floats(self, generator, "geometric", float(np.float32(1) - np.float32(p)))
    return _put(self, np.ceil(np.log(_uniform(self, generator)) / np.log(1.0 - p)))


@kernel("exponential_")
@_silent
def exponential_(self: Any, lambd: float = 1.0, *, generator: Any = None) -> Any:
    if self.dtype != torch.float64:
        return _floats(self, generator, "exponential", float(-1.0 / np.float32(lambd)))
    drawn = _uniform(self, generator)
    small = np.finfo(np.float64).eps / 2
    return _put(self, -1.0 / np.float64(lambd) * np.where(drawn >= 1 - small, -small, np.log(drawn)))


# integers -------------------------------------------------------------------------------------------------------------
_MANTISSA = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_WIDE = (torch.int64, torch.float64)


def _most(dtype: Any) -> int:
    """The greatest number that is drawn for a type."""
    return 1 << _MANTISSA[dtype] if dtype.is_floating_point else 1 if dtype == torch.bool else torch.iinfo(dtype).max


def _rests(self: Any, generator: Any, wide: bool, size: int, low: int) -> Any:
    """Fill a tensor with rests of a division by `size`, plus `low`. wide: whether a number is made of 64 bits."""
    drawn = _draw(self.numel(), generator, "words64" if wide else "words32")
    if size <= _MASK:
        divisor = drawn.dtype.type(size)
        whole = drawn // divisor  # NumPy divides faster than it finds rests; in place, since fresh memory costs more than that
        whole *= divisor
        drawn -= whole
    if not wide and -low <= 1 << 31 >= low + size:
        drawn = drawn.view(np.int32)
        drawn += np.int32(low)
        return _put(self, drawn)
    return _put(self, (drawn.astype(np.uint64, copy=False) + np.uint64(low & _MASK)).view(np.int64))


@kernel("random_")
@_silent
def random_(self: Any, *, generator: Any = None) -> Any:
    return _rests(self, generator, self.dtype in _WIDE, _most(self.dtype) + 1, 0)


@kernel("random_.from")
@_silent
def random_from(self: Any, low: int, high: int | None, *, generator: Any = None) -> Any:
    if high is None:
        high = _most(self.dtype) + 1
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _rests(self, generator, high - low >= 1 << 28, high - low, low if high - low <= _MASK else 0)


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


def _neighbours(rows: int, calls: int, used: int, width: int, seed: int, place: int) -> Any:
    """Uniform numbers of threads that give neighbours what they draw.

    rows: how often a thread does so.
    calls: how often it draws four words for that.
    used: numbers of four words that it uses.
    width: threads.
    seed, place: of the generator, in draws.
    """
    drawn = np.empty((rows, calls, 4, width), np.float32)
    _fill(drawn.ctypes.data, drawn.size, "uniform32", seed, place, width)
    return drawn[:, :, :used].transpose(0, 3, 1, 2)


def _dropout_numbers(x: Any, left: float) -> Any:
    """Whether each element is kept, in the order of memory. A thread takes neighbours where these can be read at once."""
    count, width = x.numel(), _width(x.numel())
    dense = torch.empty_like(x).stride() == x.stride()
    each = next((v for v in (8, 4, 2) if v * x.element_size() <= 16 and dense and not count % v), 1)
    bound = np.float32(left)
    if each == 1:
        return _draw(count, None, "uniform32") < bound
    drawn = _neighbours(-(-count // (width * each)), -(-each // 4), min(each, 4), width, *_take(None, count, 4))
    return (drawn < bound).reshape(-1)[:count]


@kernel("bernoulli_.Tensor")
@_silent
def bernoulli_tensor(self: Any, p: Any, *, generator: Any = None) -> Any:
    count = self.numel()
    chances = dispatch.alias(p) if p.is_cuda else p
    chances = chances.broadcast_to(self.size())
    width = -(-count // (4 * philox.LANES)) * philox.LANES
    drawn = _neighbours(1, 1, 4, width, *_own(generator).take(10)).reshape(-1)[:count]
    order = sorted(range(self.dim()), key=lambda n: -self.stride(n))
    target = dispatch.alias(self).permute(order)
    target.copy_(torch.as_tensor(drawn).view(target.shape) <= chances.permute(order))
    return self
