"""LLVM text to callable machine code, with the object code kept on disk between runs (store.py).

LLVM works in a separate thread, one piece at a time. The caller waits for the piece, so that Ctrl-C and time limits end the
wait at once; the thread finishes its piece, which is stored. Work without a waiting caller (`afterwards`) comes last.

Some machine code is compiled twice: `quick` pieces pass through few of LLVM's passes and its fastest code generator. Such code is
slower and computes the same bits. Texts of level INNER are written as a processor should run them: few passes, and the best
code generator.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mmulator.base.codegen.cpus import ARM, LEVELS, X86, architecture_of, chosen, machine, own_architecture
from mmulator.base.codegen.linking import HERE, Linked
from mmulator.base.codegen.locks import TimeUp, at_fork, no_fork, remaining
from mmulator.base.codegen.store import digest_of, store
from mmulator.base.errors import UnsupportedError

INNER = 3  # the level of inner loops of products
_FORMAT, _FORMAT_QUICK = "3", "3"  # another number where other code is made of a text


@cache
def _binding() -> Any:
    """LLVM. Raises UnsupportedError where it cannot be used."""
    if sys.platform == "win32":
        raise UnsupportedError("no kernel is compiled or run on Windows", hint="WSL 2 has a Linux that runs all of it")
    with no_fork:
        try:
            import llvmlite.binding as binding
        except ImportError as error:
            raise UnsupportedError(f"kernels are compiled by llvmlite: {error}", hint="pip install llvmlite") from None

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        return binding


@cache
def llvm_version() -> int:
    """The major version of LLVM. Raises UnsupportedError where it cannot be used."""
    return int(_binding().llvm_version_info[0])


@cache
def _host() -> list[str]:
    """Name and features of this machine's own CPU, and LLVM's version: kept, since LLVM takes longer to load than to start a
    kernel that was compiled before."""
    kept, identity = store(), machine()
    key = digest_of(f"host\0{_llvm_file()}\0{identity}".encode()).hexdigest()
    data = kept.read(key) if kept and identity else None
    if data is None:
        binding = _binding()
        own = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), str(binding.llvm_version_info)
        data = "\n".join(own).encode()
        if kept and identity:
            kept.write(key, data)
    return data.decode().split("\n")


def _llvm_file() -> str:
    """The identity of LLVM's library."""
    try:
        import llvmlite
    except ImportError:
        _binding()  # says what to do
        raise

    found = [(f.name, f.stat()) for f in os.scandir(f"{llvmlite.__path__[0]}/binding") if f.name.startswith("libllvm")]
    return f"{llvmlite.__version__} {[(name, info.st_size, info.st_mtime_ns) for name, info in found]}"


@cache
def _cpu() -> tuple[str, str]:
    name, features, _ = _host()
    return chosen(os.environ.get("MMULATOR_CPU", ""), name, features)


def architecture() -> str:
    """The architecture for which code is compiled: this machine's, but while objects for another are made (tools/ship.py)."""
    return architecture_of(_cpu()[0])


def rounds_halves() -> bool:
    """Whether the CPU for which code is compiled converts between f16 and f32."""
    return architecture() == ARM or has_feature("f16c")


def has_feature(name: str) -> bool:
    """Whether the CPU for which code is compiled has a feature of LLVM's, such as avx512f."""
    return f"+{name}" in _cpu()[1].split(",")


def target_cpu() -> tuple[str, str]:
    """(name, features) of the CPU for which code is compiled."""
    return _cpu()


@cache
def _triple() -> str:
    """LLVM's name of the system for which code is compiled."""
    binding, wanted = _binding(), architecture()
    if wanted == own_architecture():
        return str(binding.get_default_triple())
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return f"{wanted}-unknown-linux-gnu"


def _new_target_machine(level: int) -> Any:
    cpu, features = _cpu()
    if architecture() != X86 and cpu in LEVELS:
        cpu = "generic"  # LLVM has no names for these levels
    target = _binding().Target.from_triple(_triple())
    return target.create_target_machine(cpu=cpu, features=features, opt=level, codemodel="jitdefault", jit=True)


@cache
def _target_machine(level: int) -> Any:
    return _new_target_machine(level)


def cache_folder() -> Path | None:
    """The folder of stored object code; None if there is none (then nothing is stored)."""
    found = store()
    return found.path if found else None


def key_of(*parts: str) -> str:
    """The key in the store of a result that depends on these texts, on this CPU and on this version of LLVM."""
    cpu, features = _cpu()
    return digest_of("\0".join((_FORMAT, _host()[2], architecture(), cpu, features, *parts)).encode()).hexdigest()


def _optimise(module: Any, level: int, quick: bool) -> None:
    """Run LLVM's passes; for quick code and inner loops the few that shorten compilation, since less code is left to generate."""
    binding = _binding()
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level > 1
    options.slp_vectorization = False
    options.loop_unrolling = level > 1
    builder = binding.create_pass_builder(_target_machine(level), options)
    if quick or level == INNER:
        passes = binding.create_new_module_pass_manager()
        passes.add_sroa_pass()
        if not quick:  # of quick code it takes a sixth of the time, and finds nothing
            passes.add_new_gvn_pass()
        passes.add_dead_code_elimination_pass()
    else:
        passes = builder.getModulePassManager()
    passes.run(module, builder)


def _key_of_text(text: str, level: int) -> str:
    return key_of(str(level), text)


def _quick(key: str) -> str:
    """The key of the quick code of a text."""
    return digest_of(f"quick {_FORMAT_QUICK} {key}".encode()).hexdigest()


class CompiledObject:
    """Object code of a module's text, finished or being compiled.

    cached: whether it came from the store.
    quick: whether better code can be compiled.
    later: whether nothing is compiled now: there is no code if the store has no better code.
    key: key of the text.
    """

    def __init__(self, text: str, level: int = 2, quick: bool = False, later: bool = False) -> None:
        self.key = key = _key_of_text(text, level)
        self.quick, code = _stored(key, quick and not later)
        self.cached = code is not None
        if later and code is None:
            self.quick, self._job = True, _Job(bytes, b"")
            return
        self._job = _Job(lambda: _kept(key, text, level, self.quick), code)
        if not self.cached:
            _worker().put(self._job)

    @classmethod
    def found(cls, key: str) -> CompiledObject:
        """The stored code of a text, by its key alone, quick code too, or none."""
        piece = cls.__new__(cls)
        piece.key = key
        piece.quick, code = _stored(key, quick=True)
        piece.cached, piece._job = code is not None, _Job(bytes, code or b"")
        return piece

    def code(self) -> bytes:
        """The object code, after waiting for it. Raises TimeUp (locks.py)."""
        return self._job.wait()

    def is_of(self, text: str, level: int) -> bool:
        return self.key == _key_of_text(text, level)

    def better(self, text: str, level: int) -> bytes:
        """The optimised code, compiled in LLVM's own thread, for work that is done `afterwards`."""
        kept = store()
        return (kept and kept.read(self.key)) or _kept(self.key, text, level, False)

    def give_up(self) -> None:
        """Cancel the compilation: the code is no longer needed."""
        self._job.wanted = False


def _stored(key: str, quick: bool) -> tuple[bool, bytes | None]:
    """(whether the code is quick, or quick code is wanted; the stored code, or None)."""
    kept = store()
    code = kept.read(key) if kept else None
    if code is not None or not quick:
        return False, code
    return True, kept.read(_quick(key)) if kept else None


def _kept(key: str, text: str, level: int, quick: bool) -> bytes:
    code, folder = _compile(text, level, quick), store()
    if folder:
        folder.write(_quick(key) if quick else key, code)
    return code


def better_code(text: str, level: int = 2) -> bytes:
    """The optimised code of a text, compiled in LLVM's own thread, for work that is done `afterwards`."""
    key = _key_of_text(text, level)
    return _stored(key, False)[1] or _kept(key, text, level, False)


def compile_object(text: str, level: int = 2) -> tuple[bytes, bool]:
    """(object code of a module's text, whether it came from the cache). Raises TimeUp (locks.py)."""
    piece = CompiledObject(text, level)
    return piece.code(), piece.cached


def afterwards(work: Callable[[], bytes]) -> None:
    """Let LLVM's thread do some work when it is idle; possibly never."""
    if not _ended:
        _worker().put_off(_Job(work))


# Of LLVM 22: a vector of bytes that becomes a mask and then a number is one vpmovmskb to its last pass but for registers 16 to
# 31, which that instruction does not have; it takes another in their place. So the mask passes through an empty piece of
# assembly, between which and the number the pass finds nothing to join. (A test has 32 such masks at once.)
_MASK_TO_NUMBER = r"(?m)^  (%[\w.]+) = bitcast <(8|16|32) x i1> (%[\w.]+) to i(8|16|32)$"


def _keep_masks(text: str) -> str:
    if llvm_version() < 21 or "+avx512bw" not in _cpu()[1]:
        return text
    seen = r'  \1.seen = call <\2 x i1> asm "", "=k,0"(<\2 x i1> \3)\n  \1 = bitcast <\2 x i1> \1.seen to i\4'
    return re.sub(_MASK_TO_NUMBER, seen, text)


def _compile(text: str, level: int, quick: bool = False) -> bytes:
    with no_fork:
        binding = _binding()
        module = binding.parse_assembly(_keep_masks(text))
        module.triple = _triple()
        module.data_layout = str(_target_machine(level).target_data)
        _optimise(module, level, quick)
        code = bytes(_target_machine(0 if quick else level).emit_object(module))
        module.close()
        return code


class _Worker:
    """The thread in which LLVM works."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.later: deque[_Job] = deque()
        self.thread = threading.Thread(target=self._run, name="mmulator compiler", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                job = self.jobs.get(block=not self.later)
            except queue.Empty:
                job = self.later.popleft()
            if job is None:
                break
            job.run()

    def put(self, job: _Job) -> None:
        self.jobs.put(job)

    def put_off(self, job: _Job) -> None:
        self.later.append(job)
        self.jobs.put(_Job(bytes))  # it may sleep

    def stop(self) -> None:
        """Wait until the current piece is finished: LLVM must not be unloaded while it works."""
        self.later.clear()
        while not self.jobs.empty():
            with suppress(queue.Empty):
                self.jobs.get_nowait()
        self.jobs.put(None)
        with suppress(KeyboardInterrupt):
            self.thread.join()


class _Job:
    def __init__(self, work: Callable[[], bytes], result: bytes | None = None) -> None:
        self.work = work
        self.done = threading.Event()
        self.wanted = True
        self.result = result or b""
        self.error: BaseException | None = None
        if result is not None:
            self.done.set()

    def run(self) -> None:
        try:
            if self.wanted:
                self.result = self.work()
        except BaseException as error:
            self.error = error
        self.done.set()

    def wait(self) -> bytes:
        try:
            if not self.done.is_set() and not self.done.wait(remaining()):
                raise TimeUp
        except BaseException:
            self.wanted = False
            raise
        if self.error is not None:
            raise self.error
        return self.result


_workers: list[_Worker] = []  # one, from the first compilation on
_ended: list[bool] = []  # the process is about to end


def _worker() -> _Worker:
    with no_fork:
        if not _workers:
            _workers.append(_Worker())
            atexit.register(_stop_worker)
        return _workers[0]


def _stop_worker() -> None:
    _ended.append(True)
    while _workers:
        _workers.pop().stop()


def end() -> None:
    """Wait until LLVM is idle, and keep all threads from it: its destructors come next."""
    _stop_worker()
    no_fork.acquire(timeout=_PATIENCE)  # who holds it may wait for a piece that the worker has dropped
    lock = _llvm_lock()
    if lock is not None:
        lock.__enter__()


_PATIENCE = 1.0  # seconds


def _llvm_lock() -> Any:
    """The lock that llvmlite takes for each call, if it is loaded."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(ffi, "lib", None), "_lock", None)


_taken: list[Any] = []  # while a fork is under way


def _before_fork() -> None:
    """Wait until LLVM is idle, because no thread of the child would finish its work."""
    for lock in (no_fork, _llvm_lock()):
        if lock is not None:
            lock.__enter__()
            _taken.append(lock)


def _after_fork() -> None:
    taken = _taken[::-1]
    _taken.clear()  # before the first is released: the next fork may begin then
    for lock in taken:
        lock.__exit__(None, None, None)


def _in_child() -> None:
    _workers.clear()
    _after_fork()


at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


class _LinkedByLlvm(Linked):
    """Machine code in memory, linked by LLVM, for machines whose object code is of another kind."""

    def __init__(self, level: int) -> None:
        binding = _binding()
        with no_fork:
            empty = binding.parse_assembly("")
            # an engine owns its target machine and frees it
            self._engine = binding.create_mcjit_compiler(empty, _new_target_machine(level))

    def add(self, codes: Iterable[bytes], symbols: dict[str, int] | None = None, gated: Collection[str] = ()) -> None:
        binding = _binding()
        with no_fork:
            for name, address in (symbols or {}).items():
                binding.add_symbol(name, address)
            for code in codes:
                self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def find(self, name: str) -> int:
        return int(self._engine.get_function_address(name))


def code_memory(level: int = 2, unwound: bool = False) -> Linked:
    """An empty memory for machine code of a level of optimisation. unwound: whether exceptions of C++ may pass through the code,
    which LLVM makes known to the process."""
    return Linked() if HERE and not unwound else _LinkedByLlvm(level)


class Library:
    """Loaded machine code. `address(name)` of a function stays valid as long as the Library exists."""

    def __init__(self, text: str, level: int = 2, symbols: dict[str, int] | None = None, unwound: bool = False) -> None:
        """text: LLVM's. symbols: addresses of what the code refers to. unwound: as `code_memory` has it."""
        code, self.cached = compile_object(text, level)
        self._objects = code_memory(level, unwound)
        self._objects.add([code], symbols)

    def address(self, name: str) -> int:
        return self._objects.address(name)

    def function(self, name: str, returns: Any, *arguments: Any) -> Any:
        """A ctypes callable; the interpreter lock is released while it runs."""
        return ctypes.CFUNCTYPE(returns, *arguments)(self.address(name))
