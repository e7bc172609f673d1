"""Object code of native functions, to be shipped with the package: what kernels call, and products of matrices.

    python tools/ship.py FOLDER [ARCHITECTURE]

writes FOLDER/LEVEL.bin for each level of CPUs (mmulator/base/codegen/shipped.py), the libraries of CUDA that `exec` puts in place
(doors/library/files.py), and the list of files that say what native functions are (base/codegen/sources.py); the build of a wheel
calls it (hatch_build.py). Without an architecture the only level is that of this machine, and the functions are those that a
first run needs, as quick code with the texts of better code: those of the kernels in CHOSEN and of the examples, plain and
sanitized, and the dense arithmetic of the types in COMMON. A release for x86_64 or aarch64, made on either, has, for every
level, those of all kernels in FOLDERS, plain, sanitized, and as workers of a Dask cluster run them, pieces of their instructions,
the arithmetic of every matrix instruction on every chip, and random numbers, none of them quick code.
Nothing that is made here is run here. Who edits the package meanwhile gets an error: nobody would use what was made of other
files. What was made is kept in the code cache, where the next build of the same sources finds it.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import sys
import tempfile
import traceback
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from os import environ
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels" / "ptx"
FOLDERS = KERNELS, ROOT / "tests" / "kernels" / "handwritten", ROOT / "tests" / "ub", ROOT / "examples"
# Common kernels with most of what common kernels need. Other functions are compiled by the first kernel that calls them, some
# milliseconds each: all functions of the corpus take three times as long, and who installs waits for them.
CHOSEN = (
    "layernorm", "reductions_f16", "atomics", "attention_causal_sm80", "attention_causal_sm90", "gemm_descriptor_bf16_sm90",
)  # fmt: skip
COMMON = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8")  # types of A and B
Work = Callable[[], object]
Compiled = Callable[..., bytes]
NAME = re.compile(r"@((?!llvm\.)[\w.]+)")  # of a function in LLVM's text
CHANGED = "files of the package changed while its object code was made: make it again (or none: MMULATOR_SHIP=0)"


class Collected:
    """What mmulator.base.codegen.named keeps and finds, besides."""

    def __init__(self) -> None:
        from mmulator.base.codegen import named

        self.entries: dict[tuple[int, str], tuple[bytes, list[str]]] = {}
        self.pieces: dict[str, Any] = {}  # that may stand for the stencils of what is being compiled
        self._keep, self._find = named.keep, named.find

    def keep(self, name: str, code: bytes, links: Iterable[str] = (), level: int = 2) -> None:
        self.entries[level, name] = code, list(links)
        if level != 1:  # a text: no other process asks for it
            self._keep(name, code, list(links), level)

    def find(self, name: str, levels: Sequence[int] = (2, 0)) -> Any:
        """Another process may have kept it."""
        for level in levels:
            found = self._find(name, [level])
            if found is not None:
                self.entries[level, name] = found.code, list(found.links)
                return found
        return None


def renamed(code: bytes, names: dict[str, str]) -> bytes:
    """Flattened code with other names for what it defines and refers to."""
    from mmulator.base.codegen.linking import _FLAT_HEAD

    *head, size, image = _FLAT_HEAD.unpack_from(code)
    rest = _FLAT_HEAD.size + size
    said = "\0".join(names.get(name, name) for name in code[_FLAT_HEAD.size : rest].decode().split("\0")).encode()
    return _FLAT_HEAD.pack(*head, len(said), image) + said + code[rest:]


def once(compiled: Compiled) -> Compiled:
    """A compiler that compiles functions which differ in names alone one time: the code of each has its own names. Machine code
    in ELF's form is compiled for each.
    """
    from mmulator.base.codegen.engine import X86, architecture

    found: dict[tuple[str, int, bool], bytes] = {}

    def code_of(text: str, level: int, quick: bool = False) -> bytes:
        if architecture() != X86:
            return compiled(text, level, quick)
        numbers = {name: f"native{n}" for n, name in enumerate(dict.fromkeys(NAME.findall(text)))}
        key = NAME.sub(lambda name: f"@{numbers[name[1]]}", text), level, quick
        if key not in found:
            found[key] = flattened(compiled(*key))
        return renamed(found[key], {number: name for name, number in numbers.items()})

    from mmulator.base.codegen.linking import flattened

    return code_of


def collector(level: str, release: bool) -> Collected:
    """What collects all fixed code that this process makes from now on, which is for a level and is never run."""
    from mmulator.base.codegen import cpus, engine, loading, named, shipped, stencils
    from mmulator.base.codegen.loading import ensure
    from mmulator.compiler import kernel as compiling
    from mmulator.runtime.code import BlockCode

    collected = Collected()
    engine._cpu = lambda: (level, cpus.features(level))
    engine.store = lambda: None  # type: ignore[assignment]  # what has a name is kept under it
    engine._compile = once(engine._compile)
    loading.QUICK = not release
    shipped.shipped.cache_clear()  # what is in place for the level of the host is not looked at
    named.keep, named.find = collected.keep, collected.find

    class Unwritten(BlockCode):
        """Of the kernel itself nothing is compiled."""

        def take(self, text: str, group: range, join: Callable[[], bool]) -> None:
            join()

        def load(self, natives: Iterable[Any], done: Callable[[int], object], records: Any) -> None:
            ensure([*natives, *records.stencils(), *collected.pieces.values()])
            collected.pieces.clear()

    def whole(_: Any, split: Callable[[], Any]) -> None:
        if release:
            collected.pieces |= {stencil.name: stencil for _, stencil in split().parts}

    stencils.chosen = whole
    compiling.BlockCode = Unwritten  # type: ignore[misc]
    return collected


def of_kernel(path: Path, how: Any, name: str = "") -> Work:
    """Compile the kernels of a file of PTX, or the one of a name, with options."""

    def work() -> None:
        import mmulator as mm

        for kernel in mm.Module.load(path).values():
            if name in ("", kernel.name):
                kernel.compile(options=how)

    return work


def keys() -> list[Any]:
    """The arithmetic of every matrix instruction: DotKeys of mma, wgmma and wmma, of transposed products too, and of tcgen05."""
    from mmulator.errors import OperandError
    from mmulator.isa.matrix import matrix_forms
    from mmulator.matrix.layouts.instruction_descriptor import BLOCKS, FORMATS, InstructionDescriptor, Variant
    from mmulator.matrix.twin.places import commutes, key_of
    from mmulator.runtime.launch.tensor_tables import key_of as key_of_tensor

    found = {}
    for form in matrix_forms():
        if form.atype:
            found |= dict.fromkeys(key_of(form, swap) for swap in {False, commutes(form)})
    for kind, fields in FORMATS.items():
        choices = {f.name: [*f.choices.values()] for f in fields}
        names = [n for n in ("dtype", "atype", "btype", "stype", "k", "sparse", "saturate") if n in choices]
        for values, factors in product(product(*(choices[n] for n in names)), {*BLOCKS.get(kind, {0: 0}).values()}):
            given = {"dtype": "f32", **dict(zip(names, values))}
            with suppress(OperandError):  # no such instruction
                found[key_of_tensor(InstructionDescriptor(kind, **given), Variant(kind, scale_vec=factors))] = None
    return list(found)


def common(key: Any) -> bool:
    """Whether a key is of dense products of one of the types in COMMON."""
    return not key.sparse and not key.scale_blocks and key.atype == key.btype and str(key.atype) in COMMON


def of_key(key: Any) -> Work:
    def work() -> None:
        from mmulator.base.codegen.loading import ensure
        from mmulator.errors import UnsupportedError
        from mmulator.isa.targets import DEVICES
        from mmulator.matrix.twin.twin import twin_for

        for device in DEVICES:
            with suppress(UnsupportedError):  # a chip without the instruction
                ensure(twin_for(key, device).natives.values())

    return work


def of_form(form: Any) -> Work:
    """What moves the operands of a form of mma or wmma, one product or many."""

    def work() -> None:
        from mmulator.base.codegen.loading import ensure
        from mmulator.errors import UnsupportedError
        from mmulator.isa.targets import DEVICES
        from mmulator.matrix.twin.lines import lines_function, registers_function
        from mmulator.matrix.twin.places import commutes, product_for
        from mmulator.matrix.twin.product import batch_function

        for swap in {False, commutes(form)}:
            ensure([*(lines_function(form, name, swap) for name in "abc"), registers_function(form, swap)])
        for device in DEVICES:
            with suppress(UnsupportedError):
                ensure([batch_function(product_for(form, device).function)])
                break

    return work


def of_arrays() -> None:
    """Random numbers, and products of many matrices."""
    from mmulator.base.codegen.loading import ensure
    from mmulator.matrix.twin.matrices import batch_function
    from mmulator.matrix.twin.philox import every

    ensure([*every(), *map(batch_function, range(4))])  # up to a sparse A's metadata and both scale factors


def of_neighbours() -> None:
    from mmulator.base.codegen.loading import ensure
    from mmulator.ptx.program.uniform import MOST
    from mmulator.runtime.native.memory.memory import kept_function, words_function

    for space in ("global", "generic", "shared"):
        ensure([kept_function(space), *(words_function(space, count) for count in range(2, MOST + 1))])


def of_pieces() -> None:
    """Operations on registers, loads and stores of every width."""
    from mmulator.base.codegen.loading import ensure
    from mmulator.base.codegen.stencils import common_pieces
    from mmulator.isa.matrix import matrix_forms
    from mmulator.runtime.native.matrix import matrix_move
    from mmulator.runtime.native.memory import memory, uniform

    natives: list[Any] = []
    for space, size in product(("global", "shared", "generic"), (1, 2, 4, 8)):
        counts = [count for count in (1, 2, 4, 8) if size * count <= 32]
        natives += [f(space, size, count) for f in (memory.load_function, memory.store_function) for count in counts]
        natives += [uniform.run_function(space, size), *(uniform.load_function(space, size, count) for count in counts)]
    for family, move in (("ldmatrix", matrix_move.load_function), ("stmatrix", matrix_move.store_function)):
        natives += [move("shared", form) for form in matrix_forms(family)]
    ensure([*common_pieces(), *common_pieces({native.name: native for native in natives}.values())])


@cache
def works(release: bool) -> list[Work]:
    """What is to be compiled, in pieces."""
    from mmulator.isa.matrix import matrix_forms
    from mmulator.runtime.native.hooks.touched import TOUCHED
    from mmulator.runtime.options import DEFAULT, CompileOptions
    from mmulator.sanitizer.instrument import SANITIZE

    clusters = CompileOptions(clusters=True)
    if not release:  # the last of the kernels is that of the example of a pipeline
        chosen = *(KERNELS / f"{name}.ptx" for name in CHOSEN), *sorted((ROOT / "examples").rglob("*.ptx"))
        kernels = [of_kernel(path, how) for how, path in product((DEFAULT, CompileOptions(events=SANITIZE)), chosen)]
        return [*kernels, of_kernel(KERNELS / "gemm_pipelines.ptx", clusters, "gemm_tma"), *map(of_key, filter(common, keys()))]
    ways = DEFAULT, clusters, CompileOptions(events=SANITIZE), CompileOptions(events=TOUCHED)
    paths = sorted(path for folder in FOLDERS for path in folder.rglob("*.ptx"))
    forms = [form for family in ("mma", "wmma") for form in matrix_forms(family) if form.atype]
    kernels = [of_kernel(path, how) for how, path in product(ways, paths)]
    return [of_arrays, of_neighbours, of_pieces, *kernels, *map(of_key, keys()), *map(of_form, forms)]


def mine(works: list[Work], number: int, count: int, claims: Path) -> Iterator[Work]:
    """Those of the works that no other of `count` processes has taken, from another place on than theirs."""
    first = len(works) * number // count
    for n in (*range(first, len(works)), *range(first)):
        try:
            (claims / str(n)).touch(exist_ok=False)
        except FileExistsError:
            continue
        yield works[n]


def say(text: str) -> None:
    """On standard error, and, since pip keeps that to itself, on the terminal of who waits."""
    print(f"mmulator: {text}", file=sys.stderr, flush=True)
    if not sys.stderr.isatty():
        with suppress(OSError), Path("/dev/tty").open("w") as terminal:
            print(f"\nmmulator: {text}", file=terminal)


def write(path: Path, level: str, release: bool, number: int, count: int) -> None:
    """One process's part of a level's functions. The folder of the path is for the processes of this level alone."""
    from mmulator.base.codegen import sources

    before = sources.of_natives()
    collected = collector(level, release)
    for work in mine(works(release), number, count, path.parent):
        work()
    sources.hashes.cache_clear()
    if not before or before != sources.of_natives():
        raise SystemExit(CHANGED)
    path.write_bytes(pickle.dumps((before, collected.entries)))


def made(path: Path) -> bool:
    """A build asks more than once."""
    from mmulator.base.codegen.shipped import of_file

    try:
        return len(of_file(path)) > 0
    except (OSError, ValueError):
        return False


def levels_of(architecture: str) -> list[str]:
    """The levels of CPUs that code is made for: those of an architecture, or for "" this machine's own."""
    from mmulator.base.codegen.cpus import LEVELS_OF, level_of
    from mmulator.base.codegen.engine import target_cpu

    if architecture:
        return [*LEVELS_OF[architecture]]
    own = level_of(*target_cpu())
    return [own] if own else []


def asked() -> str:
    """A digest of what says what is made."""
    from mmulator.base.codegen.store import digest_of

    kernels = sorted(path for folder in FOLDERS for path in folder.rglob("*.ptx"))
    return str(digest_of(b"\0".join(path.read_bytes() for path in (Path(__file__), *kernels))).hexdigest())


def main(folder: Path, architecture: str) -> None:
    """Several processes, beside each other, with the sources of this tree. What is there of them stays."""
    from mmulator.base.codegen import shipped, sources
    from mmulator.doors.library import files
    from mmulator.doors.library.elf import library
    from mmulator.doors.library.machines import HERE, MACHINES, MARKS

    if missing := [str(path) for path in FOLDERS if not path.is_dir()]:
        raise SystemExit(f"kernels that object code is made for are not there: {', '.join(missing)}")
    release, host = bool(architecture), MACHINES.get(architecture, HERE)
    others = {files.shipped(soname): soname for soname in files.LIBRARIES} if host else {}
    found = {level: folder / f"{level}.bin" for level in levels_of(architecture)}
    folder.mkdir(parents=True, exist_ok=True)
    for path in {*folder.iterdir()} - {*found.values(), *map(folder.joinpath, others)}:
        path.unlink()
    (folder / sources.LIST).write_text(sources.listed())
    for level, path in found.items():
        data = None if made(path) else shipped.kept(level, release)
        if data and shipped.Shipped(data).asked == asked():
            path.write_bytes(data)
    levels = [level for level, path in found.items() if not made(path)]
    if levels and release:
        say("compiling all that no kernel of yours changes: several minutes")
    elif levels:
        say("compiling what a first run needs on this machine: some seconds")
    count = max(1, (os.cpu_count() or 1) // len(levels or [""]))
    with tempfile.TemporaryDirectory() as scratch:
        parts = {level: [Path(scratch, level, f"{n}.part") for n in range(count)] for level in levels}
        running = [
            begun(path, level, release, n, count, f"{scratch}/cache") for level in levels for n, path in enumerate(parts[level])
        ]
        for name, soname in others.items():
            if host and not (folder / name).exists():
                (folder / name).write_bytes(library(files.made(soname, MARKS), host))
        ends = [os.waitpid(process, 0)[1] for process in running]
        if any(ends):
            raise SystemExit("the object code could not be made")
        for level in levels:
            made_of, entries = zip(*(pickle.loads(path.read_bytes()) for path in parts[level]))
            if {*made_of} != {sources.of_natives()}:
                raise SystemExit(CHANGED)
            data = shipped.written(ChainMap(*entries), asked())
            found[level].write_bytes(data)
            shipped.kept(level, release, data)


def begun(path: Path, level: str, release: bool, number: int, count: int, cache: str) -> int:
    """The number of a process, forked from this one, that writes a part of a level's functions. cache: the folder of them all."""
    from mmulator.base.codegen.store import store
    from mmulator.compiler import kernel

    path.parent.mkdir(exist_ok=True)
    kernel.meanings(), works(release)  # once, for all processes
    process = os.fork()
    if not process:
        environ["MMULATOR_CACHE"] = cache
        store.cache_clear()
        gc.disable()  # a tenth of the time, and the process ends soon
        try:
            write(path, level, release, number, count)
            os._exit(0)
        except BaseException as error:
            traceback.print_exception(error)
        finally:
            os._exit(1)
    return process


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))  # pip's isolated builds take this away where an editable installation adds it
    main(Path(sys.argv[1]), "".join(sys.argv[2:]))
