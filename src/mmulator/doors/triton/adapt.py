"""Changes to Triton's own modules, which hold only as long as the driver here is the active one.

Arrays that Triton does not know become arguments; functions of triton.testing that run a function until time has passed run it
once, also where a program has imported them before; autotuning may take the first configuration that fits.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

from mmulator.base.errors import MmulatorError, UnsupportedError
from mmulator.doors.launch_site import located
from mmulator.doors.triton.arrays import stand_in, take_arrays
from mmulator.doors.triton.launcher import Launcher
from mmulator.doors.triton.trials import Trials, measure, trials, warn_left_out
from mmulator.doors.triton.versions import interface
from mmulator.host.driver import current

BENCHMARKS = ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton")
_originals: dict[str, Callable[..., Any]] = {}


def adapt() -> None:
    """Change Triton's modules. A second call does nothing."""
    if _originals:
        return
    from triton import testing
    from triton.runtime import autotuner, jit

    interface()
    _originals["binder"] = jit.create_function_from_signature
    jit.create_function_from_signature = _binder_of
    for name in BENCHMARKS:
        function = getattr(testing, name, None)
        if isinstance(function, types.FunctionType):
            _replace(name, function)
    take_arrays()
    tuner: Any = autotuner.Autotuner
    if hasattr(tuner, "prune_configs"):  # unlike what raises in place of a name that is lacking
        _originals["prune_configs"], _originals["run"] = tuner.prune_configs, tuner.run
        tuner.prune_configs, tuner.run = _prune_configs, _run_tuned


install = adapt  # for a program whose imports are watched: before it can hold a function of triton.testing


def runs_original(code: Any) -> bool:
    """Whether this is the original code of a benchmark; one that has begun goes on with it."""
    return any(getattr(_originals.get(name), "__code__", None) is code for name in BENCHMARKS)


def is_active() -> bool:
    """Whether Triton launches here."""
    from triton.runtime import driver

    return getattr(driver.active, "launcher_cls", None) is Launcher


# arguments --------------------------------------------------------------------------------------------------------------
def _binder_of(signature: Any, params: Any, backend: Any) -> Callable[..., Any]:
    """The function that binds the arguments of a kernel's launches: Triton's own, tried a second time with stand-ins for arrays.
    """
    bind = _originals["binder"](signature, params, backend)
    bind.__globals__.setdefault("__name__", "triton.runtime.jit")  # the code that watches data_ptr() recognises it by that

    def with_arrays(*args: Any, **kwargs: Any) -> Any:
        try:
            return bind(*args, **kwargs)
        except TypeError:
            if not is_active():
                raise
            try:
                others, named = [stand_in(a) for a in args], {k: stand_in(v) for k, v in kwargs.items()}
            except MmulatorError as error:
                raise located(error) from None
            if all(new is old for new, old in zip([*others, *named.values()], [*args, *kwargs.values()])):
                raise
        return bind(*others, **named)

    return with_arrays


# benchmarks -------------------------------------------------------------------------------------------------------------
def _replace(name: str, function: types.FunctionType) -> None:
    """Replace the code of a function, also for those who hold it already, by `_run` with the function's parameters and defaults.
    """
    _originals[name] = types.FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    _originals[name].__kwdefaults__ = function.__kwdefaults__
    params = inspect.signature(function).parameters.values()
    if function.__closure__ or any(p.kind != p.POSITIONAL_OR_KEYWORD for p in params):
        return  # a function of unknown form measures by the device's events
    names = ", ".join(p.name for p in params)
    given = ", ".join(f"{p.name!r}: {p.name}" for p in params)
    space: dict[str, Any] = {}
    text = f"def {name}({names}):\n    import sys\n    return sys.modules[{__name__!r}]._run({name!r}, {{{given}}})\n"
    exec(compile(text, __file__, "exec"), space)
    function.__code__ = space[name].__code__


def _run(name: str, given: dict[str, Any]) -> Any:
    if not is_active():
        return _originals[name](**given)
    return measure(given["fn"], given.get("grad_to_none"), given.get("quantiles"), given.get("return_mode", "mean"))


# autotuning -------------------------------------------------------------------------------------------------------------
_LEFT_OUT: ContextVar[tuple[Any, list[Any]] | None] = ContextVar("_LEFT_OUT", default=None)  # of which autotuner


def _prune_configs(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Configurations to try. With the setting `first`, only the first that has not failed."""
    configs = _originals["prune_configs"](self, *args, **kwargs)
    if (tuned := trials.get()) is not None:
        tuned.begun = True
    trying = _LEFT_OUT.get()
    if trying is None or trying[0] is not self:
        return configs
    left = [c for c in configs if not any(c is out for out in trying[1])]
    return left[:1] or list(configs)[:1]


def _run_tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A launch of an autotuner. With the setting `first`, configurations that do not fit are left out, as where all are measured;
    if none fits, the first one's error is raised.
    """
    run = _originals["run"]
    if current().settings.autotune != "first" or len(self.configs) < 2 or not is_active():
        token = trials.set(tuned := Trials())
        try:
            result = run(self, *args, **kwargs)
        finally:
            trials.reset(token)
        tuned.warn()
        return result
    known, left_out = len(self.cache), list[Any]()
    first: Exception | None = None
    unfit = _unfit()
    left = _LEFT_OUT.set((self, left_out))
    try:
        while True:
            try:
                return run(self, *args, **kwargs)
            except unfit as error:
                first = first or error
                chosen = [self.cache.pop(key) for key in list(self.cache)[known:]]
                if not chosen or any(chosen[0] is out for out in left_out):
                    raise first from None
                left_out += chosen
                if isinstance(error, UnsupportedError):
                    warn_left_out(error)
    finally:
        _LEFT_OUT.reset(left)


@cache
def _unfit() -> tuple[type[Exception], ...]:
    """Exceptions that leave a configuration out: Triton's for what a chip does not hold, and those for what is not supported."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime import errors

    found = (getattr(errors, name, UnsupportedError) for name in ("OutOfResources", "PTXASError"))
    return UnsupportedError, CompileTimeAssertionFailure, *found
