"""Kernels of Triton compiled and launched with explicit arguments: no plug-in, no active driver, on any machine.

`compile` takes the types of the arguments, `launch` finds them from the arguments as Triton does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from mmulator.base.errors import LaunchError, short_traceback, shown
from mmulator.doors.triton.arrays import stand_in, take_arrays
from mmulator.doors.triton.launcher import Launcher
from mmulator.doors.triton.versions import interface
from mmulator.host import driver
from mmulator.host.module import SANITIZE
from mmulator.host.report import Report
from mmulator.host.settings import REPORT
from mmulator.isa.chips import as_device
from mmulator.observation.record.launches.traces import traces

take_arrays()  # users of this module make descriptors after its import
_TYPE = re.compile(r"(.*?)(?::(1|8|16))?\s*$")
_COMMA = re.compile(r",(?![^<]*>)")  # between types: none within tensordesc<fp16[64, 32]>
Grid = int | Sequence[int]


class Compiled:
    """A kernel for a device. ptx, ttgir: texts. metadata: Triton's, such as `num_warps` and `shared`."""

    def __init__(self, source: Any, made: Any, device: str) -> None:
        self.source, self.device = source, device
        self.ptx: str = made.asm["ptx"]
        self.ttgir: str = made.asm["ttgir"]
        self.metadata: Any = made.metadata
        self.asm: Mapping[str, Any] = made.asm
        self.names = list(source.signature)
        self.constants = [ty == "constexpr" for ty in source.signature.values()]
        self._launcher: Launcher | None = None

    @property
    def name(self) -> str:
        return str(self.metadata.name)

    @short_traceback
    def launch(
        self, grid: Grid, *args: Any, seed: int = 0, timeout: float | None = None, threads: int | None = None,
        sanitize: bool | Literal["strict", "raise"] = False, keep_going: bool = False, profile: bool = False,
        trace: str | None = None, why: str | Sequence[str] = (),
    ) -> Report:  # fmt: skip
        """Run the kernel; arrays and tensors among `args` are device memory and are updated in place.

        grid: blocks (int, or up to three).
        args: one for each parameter but constants (a tensor, an array, None, a number, a TensorDescriptor); or one for each
            parameter.
        seed: of the scheduler's choices.
        timeout: seconds that the run may take.
        threads: of the host.
        sanitize: look for undefined behaviour, which is then in the report's `findings`; "strict": with rules of severity note;
            "raise":
        the first finding of severity error is raised.
        keep_going: includes `sanitize`; an access out of bounds or misaligned is a finding and no fault: a load gets zeros, a
            store does
        nothing.
        why: elements, such as "z[999]", of which `report.why` says why they have their values.
        profile: what each line did is counted, and is in the report's `profile`.
        trace: a file that receives what happened when, for Perfetto.

        Raises LaunchError (nothing was run), UnsupportedError, ExecutionFault (memory keeps what was stored until then),
        UndefinedBehaviour.
        """
        if self._launcher is None:
            self._launcher = Launcher(self.source, self.metadata, self.ptx, device(self.device))
        runs, whole = device(self.device), driver.current()
        if sanitize not in SANITIZE:
            raise LaunchError(f"sanitize is {shown(sanitize)}, not True, False, 'strict' or 'raise'")
        sanitize, go_on = sanitize or keep_going, keep_going or (not sanitize and whole.settings.keep_going)
        wanted = whole.settings.sanitize
        if sanitize:  # the caller reads the report
            wanted = REPORT if sanitize is True else str(sanitize)
        runs.readers = [] if sanitize else whole.readers
        old = runs.settings
        asked: dict[str, Any] = {"seed": seed, "timeout": timeout, "threads": threads, "sanitize": wanted, "keep_going": go_on,
                                 "why": ";".join([why] if isinstance(why, str) else why) or whole.settings.why,
                                 "profile": "1" if profile else whole.settings.profile,
                                 "trace": str(trace or whole.settings.trace)}  # fmt: skip
        if any(getattr(old, name) != value for name, value in asked.items()):
            runs.settings = replace(old, **asked)
        extents = (grid,) if isinstance(grid, int) else tuple(grid)
        if not 1 <= len(extents) <= 3:
            raise LaunchError(f"grid is {grid!r}, not one to three whole numbers")
        x, y, z = [*extents, 1, 1][:3]
        try:
            return self._launcher.launch((x, y, z), self._all(args))
        finally:
            if trace is not None:
                traces(str(trace)).flush()

    def _all(self, args: Sequence[Any]) -> list[Any]:
        """The arguments with a place for each constant."""
        if len(args) == len(self.names):
            return [stand_in(a) for a in args]
        if len(args) != self.constants.count(False):
            wanted = [n for n, constant in zip(self.names, self.constants) if not constant]
            raise LaunchError(f"{self.name} takes {len(wanted)} arguments ({', '.join(wanted)}), not {len(args)}")
        given = iter(args)
        return [None if constant else stand_in(next(given)) for constant in self.constants]

    def __repr__(self) -> str:
        return f"<Compiled {self.name} for {self.device}: {self.metadata.num_warps} warps, {self.metadata.shared} bytes shared>"


_drivers: dict[str, driver.Driver] = {}


def device(name: str) -> driver.Driver:
    """A driver with a device, beside the process's own, on the same memory."""
    found = _drivers.get(name)
    if found is None:
        found = _drivers[name] = driver.Driver(replace(driver.current().settings, device=name))
    found.memory = driver.current().memory
    return found


@short_traceback
def compile(
    fn: Any, signature: str | Mapping[str, str], constexprs: Mapping[str, Any] | None = None, device: str = "sm_90",
    **options: Any,
) -> Compiled:  # fmt: skip
    """Compile a kernel by NVIDIA's back end of Triton, which needs no GPU. Raises UnsupportedError, LaunchError.

    fn: what @triton.jit made.
    signature: the types of its parameters but constants, by name or in order, as
        `"*fp32:16, *fp32, i32, tensordesc<fp16[64, 32]>"`: behind the colon what the argument is divisible by (16), or that it
        is 1;
        for a tensor descriptor its elements and its block.
    constexprs: its constants.
    device: `sm_90`.
    options: num_warps, num_stages and others of Triton's.
    """
    interface()
    device = as_device(device)
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as of_triton

    constants = dict(constexprs or {})
    names = [p.name for p in fn.params]
    types = _types(fn, names, signature, constants)
    attributes: dict[tuple[int, ...], Any] = {}
    for n, name in enumerate(names):
        ty, by = _TYPE.match(types[name]).groups()  # type: ignore[union-attr]
        types[name] = ty.strip()
        _check_type(name, types[name])
        if by == "1":
            types[name], constants[name] = "constexpr", 1
        elif by == "16":
            attributes[(n,)] = [["tt.divisibility", 16]]
    source = ASTSource(fn, {n: types[n] for n in names}, {(names.index(k),): v for k, v in constants.items()}, attributes)
    made = of_triton(source, target=GPUTarget("cuda", int(device[3:]), 32), options=options)
    return Compiled(source, made, device)


def _check_type(name: str, written: str) -> None:
    """Raise LaunchError for a type that Triton does not know, for which it would raise `KeyError`."""
    from triton.language import str_to_ty

    try:
        str_to_ty(written, None)
    except (KeyError, IndexError):
        raise LaunchError(
            f"Triton has no type {written!r}, which the signature gives {name}", hint="write i32, fp32, *bf16, *fp32:16"
        ) from None


def _types(fn: Any, names: list[str], signature: str | Mapping[str, str], constants: Mapping[str, Any]) -> dict[str, str]:
    """Types of all parameters, `constexpr` for constants. Raises LaunchError."""
    for name in constants:
        if name not in names:
            raise LaunchError(f"{fn.__name__} has no parameter {name}: its parameters are {', '.join(names)}")
    rest = [n for n in names if n not in constants]
    if isinstance(signature, str):
        items = [t.strip() for t in _COMMA.split(signature)] if signature.strip() else []
        if len(items) != len(rest):
            raise LaunchError(f"the signature has {len(items)} types, and {fn.__name__} takes {len(rest)}: {', '.join(rest)}")
        signature = dict(zip(rest, items))
    missing = [n for n in rest if n not in signature]
    if missing:
        raise LaunchError(
            f"the signature has no type for {', '.join(missing)} of {fn.__name__}", hint="constants go into constexprs"
        )
    return {n: "constexpr" if n in constants else signature[n] for n in names}


@short_traceback
def launch(
    fn: Any, grid: Grid | Callable[[dict[str, Any]], Sequence[int]], *args: Any, device: str | None = None, seed: int = 0,
    timeout: float | None = None, threads: int | None = None, sanitize: bool | Literal["strict", "raise"] = False,
    keep_going: bool = False, profile: bool = False, trace: str | None = None, why: str | Sequence[str] = (), **meta: Any,
) -> Report:  # fmt: skip
    """Compile a kernel for its arguments, as `fn[grid](*args, **meta)` does, and run it here, whatever Triton's driver is.
    Arrays are updated in place.

    fn: what @triton.jit made; of @triton.autotune the first configuration.
    grid: blocks, or a function of the arguments.
    args: of the kernel.
    device: default: that of MMULATOR_DEVICE.
    seed, timeout, threads, sanitize, keep_going, profile, trace, why: as in Compiled.launch.
    meta: constants by name, num_warps and the like.

    Raises what Compiled.launch raises.
    """
    compiled, bound = _bound(fn, args, meta, as_device(device or driver.current().device.name))
    size = grid(bound) if callable(grid) else grid
    return compiled.launch(
        size, *bound.values(), seed=seed, timeout=timeout, threads=threads, sanitize=sanitize, keep_going=keep_going,
        profile=profile, trace=trace, why=why,
    )  # fmt: skip


def compiled_for(fn: Any, given: Mapping[str, Any], device: str) -> Compiled:
    """The kernel that Triton makes for arguments. given: the arguments by name, constants and options such as num_warps among
    them. Raises what Compiled.launch raises, but for the run."""
    return _bound(fn, (), dict(given), as_device(device))[0]


def _bound(fn: Any, args: Sequence[Any], meta: dict[str, Any], name: str) -> tuple[Compiled, dict[str, Any]]:
    """(a kernel compiled for arguments, the arguments by name). name: of the device."""
    interface()
    fn, meta = _plain(fn, args, meta)
    backend, bind = _binder(fn, name)
    bound, found, options = bind(*[stand_in(a) for a in args], **{k: stand_in(v) for k, v in meta.items()})
    options.setdefault("debug", bool(fn.debug))
    _check_globals(fn)
    key = (fn.cache_key, name, str(found), str(options))
    compiled = _known.get(key)
    if compiled is None:
        from triton.compiler import compile as of_triton

        _check_options(fn, backend, options)
        source = _source(fn, backend, bound, found)
        compiled = _known[key] = Compiled(source, of_triton(source, target=backend.target, options=options), name)
    return compiled, bound


_known: dict[tuple[str, ...], Compiled] = {}


def _plain(fn: Any, args: Sequence[Any], meta: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(kernel below autotuning and heuristics, its constants)."""
    while not hasattr(fn, "params"):
        if not hasattr(fn, "fn"):
            raise LaunchError(f"a {type(fn).__name__} is no kernel of Triton", hint="decorate the function with @triton.jit")
        if hasattr(fn, "configs"):
            meta = {**fn.configs[0].all_kwargs(), **meta}
        elif hasattr(fn, "values"):
            known = {**dict(zip(fn.arg_names, args)), **meta}
            meta = {**meta, **{name: value(known) for name, value in fn.values.items()}}
        fn = fn.fn
    return fn, meta


def _binder(fn: Any, name: str) -> tuple[Any, Callable[..., Any]]:
    """(NVIDIA's back end for a device, function that binds arguments to a kernel's parameters)."""
    found = _binders.get((id(fn), name))
    if found is None:
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import make_backend
        from triton.runtime import jit

        backend = make_backend(GPUTarget("cuda", int(name[3:]), 32))
        found = _binders[id(fn), name] = (backend, jit.create_function_from_signature(fn.signature, fn.params, backend), fn)
    return found[:2]


_binders: dict[tuple[int, str], tuple[Any, Callable[..., Any], Any]] = {}  # with the kernel, which so keeps its id


def _check_options(fn: Any, backend: Any, options: Mapping[str, Any]) -> None:
    known = backend.parse_options({})
    for key in options:
        if not hasattr(known, key):
            raise LaunchError(f"{fn.__name__} has no parameter {key}, and Triton no such option")


def _check_globals(fn: Any) -> None:
    """Raise the error for a global variable that has changed: Triton compiles values of globals in."""
    for (name, _), (value, space) in fn.used_global_vals.items():
        if space.get(name) != value:
            raise LaunchError(f"the global variable {name} has changed since {fn.__name__} was compiled: it was {shown(value)}")


def _source(fn: Any, backend: Any, bound: Mapping[str, Any], found: Sequence[Any]) -> Any:
    """The source that Triton's own launch makes of arguments and of what it found about them."""
    from triton._utils import find_paths_if, get_iterable_path
    from triton.compiler import ASTSource

    types, values = [x[0] for x in found], list(bound.values())
    constants = {p: get_iterable_path(values, p) for p in find_paths_if(types, lambda _, ty: ty == "constexpr")}
    said = ["" if x[0] == "constexpr" else x[1] for x in found]
    attributes = {p: backend.parse_attr(get_iterable_path(said, p)) for p in find_paths_if(said, lambda _, s: isinstance(s, str))}
    return ASTSource(fn, dict(zip([p.name for p in fn.params], types)), constants, attributes)
