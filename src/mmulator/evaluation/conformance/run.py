"""The suite: every form in turn, on all cores; each process has the GPU and the model.

A finished form is an `ItemResult`, appended to a state file, so that an interrupted run can go on.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

from mmulator.base.codegen.sources import fingerprint
from mmulator.base.codegen.store import digest_of
from mmulator.base.errors import MmulatorError
from mmulator.base.files import append, write
from mmulator.evaluation.conformance import cases, compare, kernels, vectors
from mmulator.evaluation.conformance.gpu import Gpu
from mmulator.evaluation.conformance.probes import EDGES, PROBES, Observation, observe
from mmulator.evaluation.conformance.subjects import Subject, forms, group, subjects
from mmulator.evaluation.conformance.suites import SUITES
from mmulator.evaluation.conformance.vectors import Vector
from mmulator.evaluation.spread import hosts
from mmulator.host.backend import Backend, Chip
from mmulator.host.cpu import Cpu
from mmulator.isa.names.mnemonic import parse_mnemonic
from mmulator.isa.targets import Target

Verdict = Literal["same", "different", "error"]
_BATCH_BYTES = 48 << 20


@dataclass(frozen=True)
class WorkItem:
    """A unit of work: the subjects of one form, or those of an edge's question, or a suite (suites.py)."""

    name: str
    group: str
    mnemonic: str
    edge: str = ""
    suite: str = ""


@dataclass(frozen=True)
class ItemResult:
    """The result of an item.

    cases: as cases.py counts them.
    executions: of the instruction.
    words: words of results that were compared.
    wrong: how many of them differ.
    first: the first difference.
    """

    item: WorkItem
    verdict: Verdict
    subjects: int = 0
    cases: int = 0
    executions: int = 0
    words: int = 0
    wrong: int = 0
    seconds: float = 0.0
    first: dict[str, Any] | None = None
    subject: str = ""
    error: str = ""
    vectors: list[Vector] = field(default_factory=list, compare=False, repr=False)  # captured, not part of a report

    def as_dict(self) -> dict[str, Any]:
        return asdict(replace(self, vectors=[])) | {"vectors": []}

    @classmethod
    def of(cls, data: dict[str, Any]) -> ItemResult:
        return cls(**{**data, "item": WorkItem(**data["item"])})


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run.

    count: cases a form.
    processes: number of processes, 0 for all cores.
    machine: run the model in place of the GPU.
    replay: a folder with vectors of one device, used instead of a GPU.
    capture: keep the GPU's answers as vectors.
    limit: seconds after which no further form is begun, 0 for all forms; those of every group are taken in turn then.
    """

    seed: int = 1
    count: int = 10_000
    filter: str = ""
    gpu: int = 0
    machine: str = ""
    replay: str = ""
    capture: bool = False
    processes: int = 0
    edges: bool = True
    limit: float = 0.0

    @property
    def key(self) -> dict[str, Any]:
        """The settings that results depend on."""
        return {name: getattr(self, name) for name in ("seed", "count", "gpu", "machine", "replay", "capture")}


def items(chip: Chip, settings: RunSettings) -> tuple[list[WorkItem], list[str]]:
    """(work for a chip, mnemonics of forms that the chip or its driver lacks), both filtered."""
    wanted = re.compile(settings.filter)
    there, missing = forms(chip.target, chip.ptx)
    out = [WorkItem(f.mnemonic, group(f), f.mnemonic) for f in there]
    for edge in EDGES if settings.edges else ():
        asked = [f.mnemonic for f in there if edge.asks(f)]
        out += [WorkItem(f"edge {edge.name}: {m}", f"edge: {edge.name}", m, edge.name) for m in asked]
    out += [WorkItem(s.name, s.group, s.name, suite=s.name) for s in SUITES.values() if s.there(chip.target)]
    return [i for i in out if wanted.search(i.name)], [f.mnemonic for f in missing if wanted.search(f.mnemonic)]


def stored_items(settings: RunSettings) -> tuple[list[WorkItem], list[str]]:
    """The forms of a folder of vectors."""
    wanted = re.compile(settings.filter)
    out = []
    for path in sorted(Path(settings.replay).glob("*.npz")):
        found = vectors.read(path)[1]
        out += [WorkItem(m, group(v[0].subject.form), m) for m, v in found.items() if wanted.search(m)]
    return out, []


# One item ------------------------------------------------------------------------------------------------------------
def resolve(item: WorkItem, target: Target) -> tuple[list[Subject], tuple[str, ...], cases.Wish | None]:
    """Subjects, kinds of operands and wishes of an item."""
    found = subjects(parse_mnemonic(item.mnemonic, target=target))
    edge = next((e for e in EDGES if e.name == item.edge), None)
    if edge is None:
        return found, (), None
    return [s for s in found if edge.subjects(s)], edge.kinds, edge.wish


def batches(
    subject: Subject, device: str, seed: int, count: int, only: tuple[str, ...] = (), wish: cases.Wish | None = None
) -> Iterator[cases.CaseBatch]:
    """`count` executions in batches of bounded size."""
    out = kernels.result(subject)
    size = 3 * cases.image_bytes(subject) + (4 * 4 * subject.form.lanes * out.count if out else 0) + 64
    room = max(len(only or cases.kinds_of(subject.form, device)), _BATCH_BYTES // size)
    done = number = 0
    while done < count:
        n = min(room, count - done)
        yield cases.build(subject, device, seed, n, first=number, only=only, wish=wish)
        done, number = done + n, number + 1


def _checked(row: ItemResult, rows: Callable[[ItemResult], Iterator[ItemResult]], all_errors: bool = True) -> ItemResult:
    """A row with all that is added to it, the last of `rows`, and the seconds that it took. all_errors: one form must not end the
    suite, whatever it raises."""
    start = time.perf_counter()
    try:
        for found in rows(row):
            row = found
    except MmulatorError as error:
        row = replace(row, verdict="error", error=str(error))
    except Exception as error:
        if not all_errors:
            raise
        row = replace(row, verdict="error", error=f"{type(error).__name__}: {error}")
    return replace(row, seconds=round(time.perf_counter() - start, 3))


def _more(row: ItemResult, cases: int, executions: int, words: int, wrong: int, **more: Any) -> ItemResult:
    """A row with more that was compared."""
    counted = {"cases": cases, "executions": executions, "words": words, "wrong": wrong}
    return replace(row, **{name: getattr(row, name) + number for name, number in counted.items()}, **more)


def check(item: WorkItem, backend: Backend, settings: RunSettings) -> ItemResult:
    """Run an item on the GPU and on the model."""
    rows = _suite if item.suite else _forms
    return _checked(ItemResult(item, "same", subjects=int(bool(item.suite))), lambda row: rows(row, backend, settings))


def _forms(row: ItemResult, backend: Backend, settings: RunSettings) -> Iterator[ItemResult]:
    device, target = backend.chip.device, backend.chip.target
    found, only, wish = resolve(row.item, target)
    if not found:
        return
    module = None
    try:
        module = backend.load(kernels.module(found, target))
        executions = cases.executions(found[0].form, settings.count, len(found), device)
        for number, subject in enumerate(found):
            for batch in batches(subject, device, settings.seed, executions, only, wish):
                yield (row := _compare(row, batch, backend, module, f"k{number}"))
        yield (row := replace(row, subjects=len(found)))
        if settings.capture and not row.item.edge:
            yield replace(row, vectors=vectors.capture(found[0].form, backend))
    finally:
        _close(backend, module)


def _suite(row: ItemResult, backend: Backend, settings: RunSettings) -> Iterator[ItemResult]:
    for r in SUITES[row.item.suite].run(backend, settings.seed, settings.count):
        yield (row := _more(row, r.cases, r.executions, r.words, r.wrong))
        if r.wrong and row.verdict == "same":
            yield (row := replace(row, verdict="different", error=r.first))


def stored_vectors(item: WorkItem, settings: RunSettings, read: Any = vectors.read) -> list[Vector]:
    """Vectors of the item's form."""
    _, found = read(Path(settings.replay) / f"{vectors.family(parse_mnemonic(item.mnemonic))}.npz")
    return found[item.mnemonic]


def check_vectors(item: WorkItem, settings: RunSettings, stored: list[Vector] | None = None) -> ItemResult:
    """Replay the vectors of a form. stored: the vectors, if they have been read already."""

    def replayed(row: ItemResult) -> Iterator[ItemResult]:
        form, device = parse_mnemonic(item.mnemonic), Path(settings.replay).name
        for v in stored_vectors(item, settings) if stored is None else stored:
            r = vectors.replay(v, device)
            row = _more(row, r.executions * cases.weight(form), r.executions, r.words, r.wrong, subjects=row.subjects + 1)
            if (r.wrong or r.error) and row.verdict == "same":
                first = r.first.as_dict() if r.first else None
                row = replace(row, verdict="different", first=first, subject=v.subject.name, error=r.error)
            yield row

    return _checked(ItemResult(item, "same"), replayed, all_errors=False)


def _close(backend: Backend, module: Any) -> None:
    try:
        if module is not None:
            backend.close(module)
    except MmulatorError:
        pass  # the context was made anew, and the module went with the old one


def _compare(row: ItemResult, batch: cases.CaseBatch, backend: Backend, module: Any, entry: str) -> ItemResult:
    form = batch.subject.form
    want = compare.model(batch, backend.chip.device)
    arrays, out = kernels.arguments(batch)
    kernels.launch(backend, module, entry, batch, arrays, out)
    wrong, first = compare.compare(batch, out, want, backend.chip.device)
    row = _more(row, batch.count * cases.weight(form), batch.count, out.size, wrong)
    if first is not None and row.first is None:
        row = replace(row, verdict="different", first=first.as_dict(), subject=batch.subject.name)
    return row


# All of them ---------------------------------------------------------------------------------------------------------
@dataclass
class RunOutcome:
    """Rows in the order of the items, forms that the GPU lacks, observations of probes, and the chip.

    complete: False after a keyboard interrupt.
    left: number of items that the time limit left.
    """

    chip: Chip
    rows: list[ItemResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = True
    left: int = 0

    @property
    def ok(self) -> bool:
        return self.complete and bool(self.rows) and all(r.verdict == "same" for r in self.rows)


_backend: Backend | None = None


def make_backend(settings: RunSettings) -> Backend:
    """The GPU, or the model in its place. Raises UnsupportedError where there is no GPU."""
    return Cpu(settings.machine) if settings.machine else Gpu(settings.gpu)


def _begin(settings: RunSettings) -> None:
    import signal

    global _backend
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    os.cpu_count = lambda: 1  # there is a process for every core: threads of the model would be in the way
    _backend = None if settings.replay else make_backend(settings)


def _observe(settings: RunSettings) -> list[Observation]:
    """Run every probe in a process of its own: a kernel may break its process's context on the GPU."""
    wanted = re.compile(settings.filter)
    numbers = [n for n, p in enumerate(PROBES) if wanted.search(f"probe {p.name}: {p.mnemonic}")]
    if settings.machine:
        return [_probe(settings, n) for n in numbers]
    return [_apart(_probe, settings, n) for n in numbers]


def _probe(settings: RunSettings, number: int) -> Observation:
    return observe(PROBES[number], make_backend(settings))


def _alone(settings: RunSettings, item: WorkItem) -> ItemResult:
    return check(item, make_backend(settings), settings)


def _apart(function: Callable[..., Any], settings: RunSettings, *more: Any) -> Any:
    """Call a function of the settings in a process of its own, so that this one holds no GPU."""
    with ProcessPoolExecutor(1, get_context("spawn")) as one:
        return one.submit(function, settings, *more).result()


def _info(settings: RunSettings) -> Chip:
    if not settings.replay:
        return make_backend(settings).chip
    path = min(Path(settings.replay).glob("*.npz"))
    return Chip.of(vectors.read(path)[0]["gpu"])


def _work(item: WorkItem, settings: RunSettings, backend: Backend | None = None) -> ItemResult:
    if settings.replay:
        return check_vectors(item, settings)
    backend = backend or _backend
    assert backend is not None
    return _apart(_alone, settings, item) if backend.broken else check(item, backend, settings)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Progress = Callable[[int, int, ItemResult | None], None]


def run(
    settings: RunSettings, state: Path | None = None, progress: Progress = lambda done, total, row: None, client: Any = None
) -> RunOutcome:
    """Run the suite, or what the filter leaves of it. A keyboard interrupt gives the outcome so far, with `complete` False.

    state: a file of rows to go on from and to append to.
    client: of a Dask cluster, on which forms are checked instead of here; no GPU is asked then.
    """
    start = time.perf_counter()
    workers = settings.processes or cores()
    if workers == 1 or settings.replay or client is not None:
        info = _info(settings)
    else:
        info = _apart(_info, settings)
    todo, missing = stored_items(settings) if settings.replay else items(info, settings)
    # what was captured before an interruption is not in the state: then all of it runs again
    done = read_state(state, settings, info) if state and not settings.capture else {}
    outcome = RunOutcome(info, missing=missing)
    rest = [i for i in (in_turn(todo) if settings.limit else largest_first(todo)) if i.name not in done]
    write = _Writer(state, settings, info, fresh=not done)
    results = dict(done)
    progress(len(todo) - len(rest), len(todo), None)
    try:
        for row in _rows(rest, settings, workers) if client is None else _rows_there(rest, settings, client):
            results[row.item.name] = row
            write(row)
            progress(len([1 for i in todo if i.name in results]), len(todo), row)
            if 0 < settings.limit < time.perf_counter() - start:
                break
    except KeyboardInterrupt:
        outcome.complete = False
    else:
        if settings.edges and not settings.replay and not settings.limit:
            outcome.observations = _observe(settings)
    outcome.rows = [results[i.name] for i in todo if i.name in results]
    outcome.left = len(todo) - len(outcome.rows) if outcome.complete else 0
    outcome.seconds = time.perf_counter() - start
    return outcome


def _rows(rest: list[WorkItem], settings: RunSettings, workers: int) -> Iterator[ItemResult]:
    if workers == 1 or len(rest) < 3:
        backend = None if settings.replay else make_backend(settings)
        for item in rest:
            yield _work(item, settings, backend)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin, initargs=(settings,))
    try:
        waiting: set[Future[ItemResult]] = set()
        for item in rest:
            waiting.add(pool.submit(_work, item, settings))
            if len(waiting) < 3 * workers:
                continue
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (f.result() for f in ready)
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (f.result() for f in ready)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _rows_there(rest: list[WorkItem], settings: RunSettings, client: Any) -> Iterator[ItemResult]:
    """Rows of the items, checked on the workers of a Dask cluster, which are sent the vectors."""
    read = cache(vectors.read)
    given = [(i, stored_vectors(i, settings, read) if settings.replay else None) for i in rest]
    calls = hosts.Calls(client, f"mmulator-{uuid.uuid4().hex}", _check_there, settings, given)
    with closing(calls.results()) as results:
        yield from (row for _, row in results)


def _check_there(settings: RunSettings, key: str, item: WorkItem, stored: list[Vector] | None) -> ItemResult:
    return check_vectors(item, settings, stored) if settings.replay else check(item, make_backend(settings), settings)


def largest_first(todo: list[WorkItem]) -> list[WorkItem]:
    """Items by the size of their shape, so that no large one is left for the end."""
    return sorted(todo, key=lambda i: -_size(i.mnemonic))


def in_turn(todo: list[WorkItem]) -> list[WorkItem]:
    """Items of every group in turn, drawn without regard to their shape, so that each part of them has all kinds."""
    places = Counter[str]()
    ranked = []
    for item in sorted(todo, key=lambda i: digest_of(i.name.encode()).digest()):
        ranked.append((places[item.group], item))
        places[item.group] += 1
    return [item for _, item in sorted(ranked, key=lambda r: r[0])]


def _size(mnemonic: str) -> int:
    found = re.search(r"m(\d+)n(\d+)(?:k(\d+))?", mnemonic)
    return int(found[1]) * int(found[2]) if found else 0


# State ---------------------------------------------------------------------------------------------------------------
def _head(settings: RunSettings, info: Chip) -> dict[str, Any]:
    """The key of all that the rows of a state file depend on."""
    return {"run": settings.key, "gpu": info.as_dict(), "code": fingerprint()}


class _Writer:
    def __init__(self, path: Path | None, settings: RunSettings, info: Chip, fresh: bool) -> None:
        self.path = path
        if path is not None and fresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, json.dumps(_head(settings, info)) + "\n")

    def __call__(self, row: ItemResult) -> None:
        if self.path is not None:
            append(self.path, (json.dumps(row.as_dict()) + "\n").encode())


def read_state(path: Path, settings: RunSettings, info: Chip) -> dict[str, ItemResult]:
    """Rows by item name; empty for a new file, or for one of another run or other code. A line cut short is left out."""
    if not path.exists():
        return {}
    rows: dict[str, ItemResult] = {}
    for number, line in enumerate(path.read_text().splitlines()):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if number == 0:
            if data != _head(settings, info):
                return {}
            continue
        row = ItemResult.of(data)
        rows[row.item.name] = row
    return rows
