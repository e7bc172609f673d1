"""Each launch of Triton's on a GPU is run by mmulator too, on copies of the same memory, and the bytes are compared.

    PYTHONPATH=. SHADOW_OUT=shadow.jsonl python -m pytest -p evidence.suites.shadow -n 16 .../test_core.py --device cuda
    python -m evidence.suites.shadow shadow.jsonl         # the table, and what differed

A pytest plug-in for a machine with a GPU, CUDA builds of torch and Triton (3.4 and later). One JSON line a launch: test,
kernel, ptx (a hash), grid, block, bytes compared, verdict, reason, seconds. Verdicts: `same`; `differ`; `not deterministic`
(the GPU, asked again from the same memory, differs from itself); `not supported` (the reason names the instruction);
`fault` (mmulator stopped the kernel, the GPU did not); `crash` (mmulator's process ended); `timeout`; `too large`;
`not compared` (the reason says why); `failed` (mmulator refused).

The copies have the addresses that the GPU's memory has, so that pointers stay what they are, stored ones too. mmulator runs
in a process of its own beside each worker, without CUDA.

SHADOW_TIMEOUT: seconds of a launch, 20. SHADOW_MEGABYTES: of memory of a launch, 64. SHADOW_LAUNCHES: of a test, 64.
SHADOW_SAVE: a folder for PTX, parameters and memory of launches that differ.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evidence.suites.shadow_model import receive, send

TIMEOUT = float(os.environ.get("SHADOW_TIMEOUT", "20"))
COMPILE = 60.0  # seconds that a launch may take besides running
LARGEST = int(os.environ.get("SHADOW_MEGABYTES", "64")) << 20
LAUNCHES = int(os.environ.get("SHADOW_LAUNCHES", "64"))
SCRATCH = 0x6000_0000_0000  # where scratch memory lies that Triton allocates for a launch
ALIGN = 512
CODES = {
    "i1": "b", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "B", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip


class NotCompared(Exception):
    """Why a launch is not compared."""


class Model:
    """The process that runs launches, and the memory that it shares with this one."""

    def __init__(self) -> None:
        folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
        with tempfile.NamedTemporaryFile(dir=folder, prefix="shadow-") as file:
            file.truncate(LARGEST + (1 << 20))
            self.memory = mmap.mmap(file.fileno(), 0)
            self.bytes = np.frombuffer(self.memory, np.uint8)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "evidence.suites.shadow_model", file.name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[2],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )  # fmt: skip
            self.ask({"ptx": "", "kernel": "", "device": "sm_90", "timeout": None}, 60)  # it has opened the file now

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any]:
        """The answer; or verdict `timeout` or `crash`, after which there is no process."""
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None and pipe_out is not None
        started = time.perf_counter()
        try:
            send(pipe_in, request)  # type: ignore[arg-type]
            ready, _, _ = select.select([pipe_out], [], [], limit)
            if ready:
                answer: dict[str, Any] = receive(pipe_out)  # type: ignore[arg-type]
                return answer
            verdict, reason = "timeout", f"no answer within {limit:g} seconds"
        except (EOFError, BrokenPipeError):
            verdict, reason = "crash", f"exit status {self.process.wait()}"
        except BaseException:  # the answer to this must not be taken for the answer to the next
            self.close()
            raise
        self.close()
        return {"verdict": verdict, "reason": reason, "seconds": time.perf_counter() - started, "notes": []}

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Cuda:
    """The few calls of CUDA's driver that are needed."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def copy(self, to: int, source: int, size: int) -> None:
        """Between any two places, and wait."""
        status = self.library.cuMemcpy(ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size))
        if status:
            raise NotCompared(f"memory of an argument cannot be copied: CUDA error {status}")

    def extent(self, address: int) -> tuple[int, int] | None:
        """(first address, bytes) of what was allocated around an address."""
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        failed = self.library.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return None if failed else (base.value, size.value)

    def device(self) -> str:
        import torch

        return "sm_{}{}".format(*torch.cuda.get_device_capability())

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def capturing(self) -> bool:
        import torch

        return torch.cuda.is_current_stream_capturing()


def paired(types: Any, values: Any) -> Iterator[tuple[str, Any]]:
    """Types and values of what is no constant, tuples taken apart. A constant may be a tuple, too."""
    for ty, value in zip(types, values, strict=True):
        if isinstance(ty, (tuple, list)):
            yield from paired(ty, value)
        elif ty != "constexpr":
            yield ty, value


def parts(name: str, ty: str, value: Any, metas: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    """Types and values of the parameters that an argument becomes: several, if it is a tensor descriptor."""
    if ty.startswith("nvTmaDesc"):
        raise NotCompared("an argument is a tensor map")
    if not ty.startswith("tensordesc"):
        yield ty, value
        return
    from mmulator.doors.triton import descriptors, versions

    for slot in descriptors.slots(ty, name, (), versions.interface(), next(metas, None)):
        yield slot.ty, slot.part(value) if slot.part else value


def storage(value: Any) -> tuple[int, int] | None:
    """(address, bytes) of a tensor's storage, of a view's tensor's; None for what has none."""
    while not hasattr(value, "untyped_storage") and hasattr(value, "base"):
        value = value.base
    if not hasattr(value, "untyped_storage"):
        return None
    memory = value.untyped_storage()
    return memory.data_ptr(), memory.nbytes()


def scalar(ty: str, value: Any) -> bytes:
    """Bytes of a scalar of a type of Triton's."""
    if ty == "bf16":
        return struct.pack("<f", value)[2:]
    if ty not in CODES:
        raise NotCompared(f"an argument of type {ty}")
    code = CODES[ty]
    if code in "efd":
        return struct.pack(f"<{code}", value)
    size = struct.calcsize(code)
    return (int(value) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def merged(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, without overlaps."""
    result: list[tuple[int, int]] = []
    for start, size in sorted(e for e in extents if e[1]):
        if result and start < result[-1][0] + result[-1][1]:
            first, before = result[-1]
            result[-1] = first, max(before, start + size - first)
        else:
            result.append((start, size))
    return result


class Launch:
    """What a launch is given. params: bytes of each parameter. extents: memory, (address, bytes). names: of arguments there."""

    def __init__(
        self, cuda: Cuda, signature: dict[str, Any], args: tuple[Any, ...], scratch: int, maps: Sequence[Any] = ()
    ) -> None:  # fmt: skip
        """scratch: bytes. maps: what the compiler wrote down of tensor descriptors, in their order."""
        self.params: list[bytes] = []
        self.names: list[tuple[int, str, str]] = []
        extents: list[tuple[int, int]] = []
        metas = iter(maps)
        named = [
            (name, ty, value)
            for (name, declared), arg in zip(signature.items(), args, strict=True)
            for pair in paired([declared], [arg])
            for ty, value in parts(name, *pair, metas)
        ]
        for name, ty, value in named:
            if ty[0] != "*" and ty != "nvTmaDesc":
                self.params.append(scalar(ty, value))
                continue
            base = value.base if ty == "nvTmaDesc" else value
            address = base.data_ptr() if hasattr(base, "data_ptr") else int(base or 0)
            self.params.append(value.encode(address, name) if ty == "nvTmaDesc" else struct.pack("<Q", address))
            if address:
                self.names.append((address, name, ty if ty[0] == "*" else "*u8"))
                found = storage(base) or cuda.extent(address)
                extents += [found] if found else []
                if ty in ("*i64", "*u64") and found:
                    extents += pointed(cuda, *found)
        self.scratch = scratch
        self.params += [struct.pack("<Q", SCRATCH if scratch else 0), bytes(8)]
        self.extents = merged(extents)
        if (total := self.total) > LARGEST:
            raise TooLarge(f"{total >> 20} MB of memory")

    @property
    def total(self) -> int:
        return sum(size + 2 * ALIGN for _, size in self.extents) + self.scratch


class TooLarge(NotCompared):
    """More memory than a launch may have."""


def pointed(cuda: Cuda, start: int, size: int) -> list[tuple[int, int]]:
    """Memory that words of a buffer are addresses of: a kernel may be given pointers so."""
    if size > 1 << 15:
        return []
    words = np.zeros(size // 8, np.uint64)
    cuda.copy(words.ctypes.data, start, words.nbytes)
    return [e for w in np.unique(words) if 1 << 40 < w < 1 << 48 and (e := cuda.extent(int(w))) and e[1] <= LARGEST]


class Shadow:
    """In a process of pytest's: its CUDA, its model, where it writes."""

    def __init__(self, out: str, cuda: Cuda) -> None:
        self.out, self.cuda = out, cuda
        self.model: Model | None = None
        self.launches: Counter[str] = Counter()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.model is None or not self.model.alive:
            self.model = Model()
        return self.model.ask(request, TIMEOUT + COMPILE)

    def write(self, line: dict[str, Any]) -> None:
        data = (json.dumps(line) + "\n").encode()
        file = os.open(self.out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, data)
        os.close(file)

    def launch(self, launcher: Any, call: Any, x: int, y: int, z: int, stream: int, function: Any, rest: tuple[Any, ...]) -> None:
        """Both sides of one launch; raises only what the GPU's side raises."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        kept = launcher._shadow
        line: dict[str, Any] = {"test": test, "kernel": kept.name, "ptx": kept.hash, "grid": [x, y, z]}
        before = None
        try:
            before = self.before(kept, test, rest)
        except NotCompared as error:
            line |= {"verdict": "too large" if isinstance(error, TooLarge) else "not compared", "reason": str(error)}
        except Exception as error:
            line |= {"verdict": "not compared", "reason": f"its arguments: {type(error).__name__}: {error}"[:300]}
        try:
            call(launcher, x, y, z, stream, function, *rest)
            if before is not None:
                self.cuda.synchronize()
        except Exception as error:
            if x * y * z:
                self.write(
                    line | {"verdict": "not compared", "reason": f"the GPU's side raised {type(error).__name__}: {error}"[:300]}
                )
            if "CUDA error" in str(error):  # nothing works in this process any more: pytest-xdist starts another
                os._exit(70)
            raise
        if before is not None:
            again = lambda: call(launcher, x, y, z, stream, function, *rest[:2], None, None, *rest[4:])  # noqa: E731
            try:
                line |= self.compare(kept, (x, y, z), rest[0], *before, again, line)
            except Exception as error:
                line |= {"verdict": "not compared", "reason": f"the comparison raised {type(error).__name__}: {error}"[:300]}
        if x * y * z:
            self.write(line)

    def before(self, kept: Kept, test: str, rest: tuple[Any, ...]) -> tuple[Launch, list[np.ndarray]]:
        """What a launch is given, and its memory before. Raises NotCompared."""
        self.launches[test] += 1
        if test and self.launches[test] > LAUNCHES:
            raise NotCompared(f"more than {LAUNCHES} launches of a test")
        if self.cuda.capturing():
            raise NotCompared("captured into a graph")
        if not kept.ptx:
            raise NotCompared("no PTX in Triton's cache")
        launch = Launch(self.cuda, kept.signature, rest[4:], kept.scratch, kept.maps)
        self.cuda.synchronize()
        return launch, self.read(launch)

    def read(self, launch: Launch) -> list[np.ndarray]:
        found = [np.empty(size, np.uint8) for _, size in launch.extents]
        for memory, (start, size) in zip(found, launch.extents):
            self.cuda.copy(memory.ctypes.data, start, size)
        return found

    def compare(
        self, kept: Kept, grid: tuple[int, int, int], packed: Any, launch: Launch, before: list[np.ndarray], again: Any,
        line: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        gpu = self.read(launch)
        if self.model is None or not self.model.alive:
            self.model = Model()
        regions, places, offset = [], [], 0
        for (start, size), memory in zip(launch.extents, before):
            offset += (start - offset) % ALIGN
            self.model.bytes[offset : offset + size] = memory
            regions.append((start, offset, size, f"memory at 0x{start:x}"))
            places.append(slice(offset, offset + size))
            offset += size
        if launch.scratch:
            offset += -offset % ALIGN
            size = launch.scratch * grid[0] * grid[1] * grid[2] * packed[1]  # of every block of every cluster
            if offset + size > len(self.model.bytes):
                return {"verdict": "too large", "reason": f"{size >> 20} MB of scratch memory"}
            regions.append((SCRATCH, offset, size, "scratch memory"))
        warps, ctas, shared = packed[:3]
        grid = (grid[0] * ctas, *grid[1:])  # Triton counts clusters
        request = {
            "ptx": kept.ptx, "kernel": kept.name, "device": self.cuda.device(), "grid": grid, "block": (32 * warps, 1, 1),
            "cluster": (ctas, 1, 1) if ctas > 1 else None,
            "shared": shared, "params": launch.params, "regions": regions, "timeout": TIMEOUT,
        }  # fmt: skip
        answer = self.ask(request)
        if answer["verdict"] == "fault" and answer["reason"].startswith("limit reached"):
            answer["verdict"] = "timeout"
        found = {
            "block": 32 * warps, "verdict": answer["verdict"], "reason": answer["reason"], "notes": answer["notes"],
            "bytes": launch.total, "seconds": round(answer["seconds"], 4),
        }  # fmt: skip
        if answer["verdict"] != "ran":
            return found
        model = [self.model.bytes[place].copy() for place in places]
        changed = sum(int(np.count_nonzero(a != b)) for a, b in zip(before, gpu))
        different = [n for n, (a, b) in enumerate(zip(gpu, model)) if not np.array_equal(a, b)]
        found |= {"verdict": "same", "bytes": sum(m.size for m in model), "changed": changed}
        if different:
            found |= {"verdict": "differ", "reason": " | ".join(described(launch, n, gpu[n], model[n]) for n in different)[:600]}
            if self.twice(launch, before, gpu, again):
                found["verdict"] = "not deterministic"
            elif folder := os.environ.get("SHADOW_SAVE"):
                path = Path(folder) / f"{kept.name[:60]}-{kept.hash}-{os.getpid()}-{self.launches.total()}.pickle"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(
                    pickle.dumps({**request, "line": {**line, **found}, "before": before, "gpu": gpu, "model": model})
                )
        return found

    def twice(self, launch: Launch, before: list[np.ndarray], gpu: list[np.ndarray], again: Any) -> bool:
        """Whether the GPU, from the same memory, comes to something else in up to sixteen further launches."""
        for _ in range(16):
            self.put(launch, before)
            again()
            self.cuda.synchronize()
            other = self.read(launch)
            self.put(launch, gpu)
            if any(not np.array_equal(a, b) for a, b in zip(gpu, other)):
                return True
        return False

    def put(self, launch: Launch, memory: list[np.ndarray]) -> None:
        for m, (start, size) in zip(memory, launch.extents):
            self.cuda.copy(start, m.ctypes.data, size)


def described(launch: Launch, number: int, gpu: np.ndarray, model: np.ndarray) -> str:
    """Where and how one memory differs."""
    start, size = launch.extents[number]
    inside = [(a, n, ty) for a, n, ty in launch.names if start <= a < start + size]
    address, name, ty = max(inside, default=(start, "memory that a pointer leads to", "*u8"))
    code = CODES.get(ty[1:], "e" if ty == "*fp16" else "B")
    kind = np.dtype({"*bf16": "<u2"}.get(ty, f"<{code}"))
    skip = (address - start) % kind.itemsize
    whole = (size - skip) // kind.itemsize * kind.itemsize
    a, b = gpu[skip : skip + whole].view(kind), model[skip : skip + whole].view(kind)
    raw = f"<u{kind.itemsize}"
    at = np.flatnonzero(a.view(raw) != b.view(raw))
    both_nan = kind.kind == "f" and bool(len(at)) and bool(np.all(np.isnan(a[at]) & np.isnan(b[at])))
    shown = ", ".join(f"[{i}] GPU {a[i]} (0x{a.view(raw)[i]:x}) model {b[i]} (0x{b.view(raw)[i]:x})" for i in at[:3])
    return f"{name} {ty}: {len(at)} of {len(a)} elements{' (all NaN on both sides)' * both_nan}: {shown}"


class Kept:
    """Of a launcher of Triton's. ptx: text, "" if there is none. signature: types of arguments. scratch: bytes a block. maps:
    what the compiler wrote down of tensor descriptors."""

    def __init__(self, source: Any, metadata: Any) -> None:
        from triton.runtime.cache import get_cache_manager

        self.name = metadata.name
        group = get_cache_manager(metadata.hash).get_group(f"{getattr(source, 'name', self.name)[:150]}.json") or {}
        path = next((p for n, p in group.items() if n.endswith(".ptx")), None)
        self.ptx = Path(path).read_text() if path else ""
        self.hash = hashlib.sha256(self.ptx.encode()).hexdigest()[:16]
        self.signature = {str(name): ty for name, ty in source.signature.items()}
        self.scratch = int(getattr(metadata, "global_scratch_size", 0))
        self.maps = getattr(metadata, "tensordesc_meta", None) or ()


def install(shadow: Shadow, launcher: Any) -> None:
    """Put the shadow behind launches of a class of Triton's launchers."""
    make, call = launcher.__init__, launcher.__call__

    def __init__(self: Any, src: Any, metadata: Any) -> None:
        make(self, src, metadata)
        self._shadow = Kept(src, metadata)

    def __call__(self: Any, x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
        shadow.launch(self, call, x, y, z, stream, function, rest)

    launcher.__init__, launcher.__call__ = __init__, __call__


def pytest_configure(config: Any) -> None:
    out = os.environ.get("SHADOW_OUT")
    controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if out and not controller:
        from triton.backends.nvidia.driver import CudaLauncher

        install(Shadow(str(Path(out).resolve()), Cuda()), CudaLauncher)


def table(lines: list[dict[str, Any]]) -> str:
    """Launches and different kernels by verdict, then reasons and what differed."""
    verdicts = Counter(line["verdict"] for line in lines)
    kernels: dict[str, set[str]] = defaultdict(set)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        kernels[line["verdict"]].add(line["ptx"])
        reasons[line["verdict"]][line.get("reason", "").split("\n")[0][:110]] += 1
    text = [f"{'verdict':<20}{'launches':>10}{'kernels':>10}"]
    text += [f"{v:<20}{n:>10}{len(kernels[v]):>10}" for v, n in verdicts.most_common()]
    text += [f"{'all':<20}{len(lines):>10}{len(set().union(*kernels.values())):>10}"]
    for verdict in verdicts:
        if verdict != "same":
            text += ["", f"{verdict}:"] + [f"{n:>8}  {r}" for r, n in reasons[verdict].most_common(25)]
    return "\n".join(text)


if __name__ == "__main__":
    print(table([json.loads(text) for path in sys.argv[1:] for text in Path(path).read_text().splitlines()]))
