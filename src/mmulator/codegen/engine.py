"""LLVM text to callable machine code, with the object code kept on disk between runs.

The cache lies in $MMULATOR_CACHE, or $XDG_CACHE_HOME/mmulator, or ~/.cache/mmulator; it may be deleted at any time.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

_lock = threading.RLock()
_FORMAT = "1"


@cache
def _binding() -> Any:
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@cache
def llvm_version() -> int:
    return int(_binding().llvm_version_info[0])


@cache
def _cpu() -> tuple[str, str]:
    binding = _binding()
    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def _new_target_machine(level: int) -> Any:
    binding = _binding()
    cpu, features = _cpu()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=level, codemodel="jitdefault", jit=True)


@cache
def _target_machine(level: int) -> Any:
    return _new_target_machine(level)


@cache
def cache_folder() -> Path | None:
    """Where object code is kept; None if no folder can be written (then nothing is kept)."""
    root = os.environ.get("MMULATOR_CACHE")
    folder = Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmulator"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder if os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError):
        return None


def _key(text: str, level: int) -> str:
    cpu, features = _cpu()
    parts = (_FORMAT, str(_binding().llvm_version_info), cpu, features, str(level), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _optimise(module: Any, level: int) -> None:
    binding = _binding()
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level > 1
    options.slp_vectorization = False
    options.loop_unrolling = level > 1
    builder = binding.create_pass_builder(_target_machine(level), options)
    builder.getModulePassManager().run(module, builder)


def compile_object(text: str, level: int = 2) -> tuple[bytes, bool]:
    """Object code of a module's text; True if it came from the cache."""
    with _lock:
        folder = cache_folder()
        path = folder / f"{_key(text, level)}.o" if folder else None
        if path is not None:
            try:
                return path.read_bytes(), True
            except OSError:
                pass
        binding = _binding()
        module = binding.parse_assembly(text)
        module.triple = binding.get_default_triple()
        module.data_layout = str(_target_machine(level).target_data)
        _optimise(module, level)
        code = bytes(_target_machine(level).emit_object(module))
        module.close()
        if path is not None:
            _write_atomically(path, code)
        return code, False


def _write_atomically(path: Path, data: bytes) -> None:
    """Several processes may write the same entry; a reader sees all of it or nothing."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        Path(file.name).replace(path)
    except OSError:
        pass


class Library:
    """Loaded machine code. `address(name)` of a function stays valid while the Library lives."""

    def __init__(self, text: str, level: int = 2, symbols: dict[str, int] | None = None) -> None:
        binding = _binding()
        code, self.cached = compile_object(text, level)
        with _lock:
            for name, address in (symbols or {}).items():
                binding.add_symbol(name, address)
            empty = binding.parse_assembly("")
            # an engine owns its target machine and frees it
            self._engine = binding.create_mcjit_compiler(empty, _new_target_machine(level))
            self._engine.add_object_file(binding.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        found = int(self._engine.get_function_address(name))
        if not found:
            raise KeyError(name)
        return found

    def function(self, name: str, returns: Any, *arguments: Any) -> Any:
        """A ctypes callable; the interpreter lock is released while it runs."""
        return ctypes.CFUNCTYPE(returns, *arguments)(self.address(name))
