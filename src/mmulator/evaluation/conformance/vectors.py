"""A GPU's answers in files: vectors/DEVICE/FAMILY.npz, and the run that they came with in report.json.

Operands are not stored: they follow from a seed (stream.py), and a digest says whether they still do. Of the results there are
all words up to a limit, or as many drawn at random, and a digest of every execution. So a file is small, any wrong word is
noticed, and most are located.

Arrays of a file: `index` (JSON as bytes: format, provenance, one entry a subject), `inputs` (a digest a subject),
`digests` (one an execution), `words` (uint32, subject after subject).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmulator.base.errors import MmulatorError
from mmulator.base.files import replacing
from mmulator.evaluation.conformance import cases, compare, kernels
from mmulator.evaluation.conformance.stream import RandomStream
from mmulator.evaluation.conformance.subjects import Subject, subjects
from mmulator.host.backend import Backend
from mmulator.isa.form import Form
from mmulator.isa.names.mnemonic import parse_mnemonic

Array = NDArray[Any]
FORMAT = 1
SEED = 20_250_101  # of all vectors: a change of it, or of the operands, makes them void
_MOVES = "matrix_move"
_EVERY_N = (8, 64, 256)  # of wgmma, with every sign, transpose and selector; other n take turns


@dataclass(frozen=True)
class Vector:
    """A GPU's answer for one subject. kinds: of operands, one execution each."""

    subject: Subject
    kinds: tuple[str, ...]
    inputs: int
    digests: NDArray[np.uint64]
    words: NDArray[np.uint32]


def family(form: Form) -> str:
    """Name of the file that a form's vectors are in."""
    return _MOVES if form.is_move else form.family


def of_form(form: Form, device: str) -> Iterator[tuple[Subject, tuple[str, ...]]]:
    """The plan for one form. The executions of a large wgmma take turns at the kinds of operands, signs, transposes and
    selectors.
    """
    kinds = cases.kinds_of(form, device)
    found = subjects(form)
    turn = form.n // 8
    if form.lanes > 32 and form.n not in _EVERY_N:
        places = [[s for s in found if s.signature == number] for number in (0, 1)]
        found = [p[turn % len(p)] for p in places]
    room = max(4, 1280 // form.n) if form.lanes > 32 else len(kinds)
    for number, subject in enumerate(found):
        first = (turn + number) * 5
        some = kinds if room >= len(kinds) else tuple(kinds[(first + i) % len(kinds)] for i in range(room))
        yield subject, tuple(k for k in kinds if k in some)


def batch_of(subject: Subject, kinds: tuple[str, ...], device: str) -> cases.CaseBatch:
    """The operands of a vector."""
    return cases.build(subject, device, SEED, len(kinds), only=kinds)


def _digest(data: Array) -> int:
    return int.from_bytes(hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).digest(), "little")


def inputs_digest(batch: cases.CaseBatch) -> int:
    """Digest of everything that the kernel is given."""
    whole = hashlib.blake2b(digest_size=8)
    out = kernels.result(batch.subject)
    arrays, d = kernels.arguments(batch)
    for array in arrays:
        if array is not d or out is None:
            whole.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(whole.digest(), "little")


def _kept(subject: Subject, words: int) -> NDArray[np.int64]:
    """Indices of the words that are stored."""
    limit = 512 if not subject.form.atype else 1024 if subject.form.lanes > 32 else 2048
    if words <= limit:
        return np.arange(words)
    return np.sort(RandomStream("kept", subject.name).words(limit).astype(np.int64) % words)


def _flat(results: Array) -> NDArray[np.uint32]:
    return np.ascontiguousarray(results).reshape(-1).view("<u4")


def vector(batch: cases.CaseBatch, kinds: tuple[str, ...], inputs: int, results: Array) -> Vector:
    """A vector from the results of a batch."""
    flat = _flat(results)
    digests = np.array([_digest(x) for x in results], np.uint64)
    return Vector(batch.subject, kinds, inputs, digests, flat[_kept(batch.subject, flat.size)])


def capture(form: Form, backend: Backend) -> list[Vector]:
    """Run a form's part of the plan on a GPU."""
    chosen = list(of_form(form, backend.chip.device))
    module = backend.load(kernels.module([s for s, _ in chosen], backend.chip.target))
    try:
        out = []
        for number, (subject, kinds) in enumerate(chosen):
            batch = batch_of(subject, kinds, backend.chip.device)
            inputs = inputs_digest(batch)
            arrays, d = kernels.arguments(batch)
            kernels.launch(backend, module, f"k{number}", batch, arrays, d)
            out.append(vector(batch, kinds, inputs, d))
        return out
    finally:
        backend.close(module)


# Files ---------------------------------------------------------------------------------------------------------------
def write(folder: Path, found: list[Vector], provenance: dict[str, Any]) -> list[Path]:
    """Write vectors of one device, one file a family; returns the paths. Raises MmulatorError if it cannot."""
    paths = []
    for name in sorted({family(v.subject.form) for v in found}):
        members = [v for v in found if family(v.subject.form) == name]
        index = {
            "format": FORMAT,
            "provenance": provenance,
            "seed": SEED,
            "kinds": (kinds := sorted({v.kinds for v in members})),
            "subjects": [_entry(v, kinds.index(v.kinds)) for v in members],
        }
        path = folder / f"{name}.npz"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MmulatorError(f"cannot write {path}: {error.strerror}") from None
        with replacing(path) as file:
            np.savez_compressed(
                file,
                index=np.frombuffer(json.dumps(index).encode(), np.uint8),
                inputs=np.array([v.inputs for v in members], np.uint64),
                digests=np.concatenate([v.digests for v in members]),
                words=np.concatenate([v.words for v in members]),
            )
        paths.append(path)
    return paths


def _entry(v: Vector, kinds: int) -> list[Any]:
    return [v.subject.form.mnemonic, v.subject.signature, list(v.subject.immediates), kinds, len(v.words)]


@lru_cache(maxsize=8)
def read(path: Path) -> tuple[dict[str, Any], dict[str, list[Vector]]]:
    """(provenance, vectors by mnemonic) of a file. Raises MmulatorError for a file of another kind, or of a newer version."""
    try:
        with np.load(path) as stored:
            index = json.loads(stored["index"].tobytes())
            inputs, digests, words = stored["inputs"], stored["digests"], stored["words"]
    except (OSError, ValueError, KeyError) as error:
        raise MmulatorError(f"cannot read vectors from {path}: {error}") from None
    if index.get("format") != FORMAT or index.get("seed") != SEED:
        raise MmulatorError(
            f"{path} has format {index.get('format')}, seed {index.get('seed')}; this version reads {FORMAT}, {SEED}",
            hint="capture vectors again: mmulator conformance --gpu --capture DIR",
        )
    out: dict[str, list[Vector]] = {}
    at_digest = at_word = 0
    for number, (mnemonic, signature, immediates, kind, count) in enumerate(index["subjects"]):
        form = parse_mnemonic(mnemonic)
        kinds = tuple(index["kinds"][kind])
        subject = Subject(form, signature, tuple((k, v) for k, v in immediates))
        part = digests[at_digest : at_digest + len(kinds)], words[at_word : at_word + count]
        out.setdefault(mnemonic, []).append(Vector(subject, kinds, int(inputs[number]), *part))
        at_digest, at_word = at_digest + len(kinds), at_word + count
    return index["provenance"], out


def files(folder: Path) -> dict[str, list[Path]]:
    """Vector files by device. Raises MmulatorError where there are none."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("sm_*/*.npz")):
        found.setdefault(path.parent.name, []).append(path)
    if not found:
        raise MmulatorError(
            f"{folder} holds no vectors",
            hint="name the folder vectors/ of the repository with --vectors, or compare with a GPU: --gpu",
        )
    return found


def default_folder() -> Path:
    """The folder vectors/ of the repository that this package lies in, or of the working directory. Raises MmulatorError if
    there is none.
    """
    for folder in (Path(__file__).parents[4] / "vectors", Path("vectors")):
        if next(folder.glob("sm_*/*.npz"), None) is not None:
            return folder
    raise MmulatorError(
        "the vectors are in the repository, not in the installed package, and not in ./vectors",
        hint="run this in a clone, give their folder with --vectors DIR, or compare with a GPU: --gpu",
    )


def extent(folder: Path) -> tuple[int, int, int]:
    """(executions, words of their results, words that are stored in full) of a folder of vectors."""
    executions = words = stored = 0
    for device, paths in files(folder).items():
        for v in (v for path in paths for members in read(path)[1].values() for v in members):
            executions += len(v.kinds)
            stored += len(v.words)
            out = kernels.result(v.subject)
            if out is not None:
                words += len(v.kinds) * v.subject.form.lanes * out.count * out.bits // 32
            elif (image := batch_of(v.subject, v.kinds, device).image) is not None:
                words += image.nbytes // 4
    return executions, words, stored


# Replay --------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Replay:
    """A compared vector: executions, words that the digests cover, how many executions differ, the first difference."""

    executions: int
    words: int
    wrong: int
    first: compare.Difference | None = None
    error: str = ""


_OTHER = (
    "its operands are not those that the GPU was given: they follow from the form's row in isa/ and from F and the floor of its "
    "profile (matrix/numerics/profiles.py), one of which has changed since"
)


def replay(v: Vector, device: str) -> Replay:
    """Compute a vector on the model and compare."""
    batch = batch_of(v.subject, v.kinds, device)
    if inputs_digest(batch) != v.inputs:
        return Replay(batch.count, 0, 0, error=_OTHER)
    want = compare.model(batch, device)
    flat = _flat(want)
    digests = np.array([_digest(x) for x in want], np.uint64)
    wrong = digests != v.digests
    if not wrong.any():
        return Replay(batch.count, flat.size, 0)
    got = flat.copy()
    got[_kept(v.subject, flat.size)] = v.words
    got = got.view(want.dtype).reshape(want.shape)
    apart = np.argwhere(got != want)
    if len(apart):
        first = compare.explain(batch, tuple(int(i) for i in apart[0]), want, got, device)
        return Replay(batch.count, flat.size, int(wrong.sum()), first)
    n = int(np.argmax(wrong))
    text = f"execution {n} ({batch.kind_of(n)}) differs in a word that is not stored"
    return Replay(batch.count, flat.size, int(wrong.sum()), error=text)
