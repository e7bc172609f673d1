"""Places in a kernel as a client names them: lines of files, lines of the PTX, and instructions at addresses of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from mmulator.observation.debug.breakpoints import lines_of
from mmulator.observation.debug.dap.client import RefusedRequest
from mmulator.observation.debug.dap.messages import Object

if TYPE_CHECKING:
    from mmulator.base.location import Location
    from mmulator.base.source import Source as Text
    from mmulator.ptx.tree import Instruction
    from mmulator.runtime.compiled import CompiledKernel

CODE, STRIDE = 1 << 40, 16  # address of a kernel's first instruction, and from one to the next: PTX has none of its own


class Texts:
    """PTX that is in no file, by numbers that a client can ask for, and the files that the client has.

    paths: files that the client has named.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.paths: set[str] = set()

    def named(self, source: Object | None) -> None:
        """The client has named a source."""
        if source is not None and source.get("path"):
            self.paths.add(str(Path(source["path"]).resolve()))

    def file(self, location: Location) -> Object | None:
        """The file of a line, if it is there. A compiler's cache may still name the place where the program was before: then a
        file of the client's is meant that has the same name, and the same text if both are there.
        """
        found = next((path for path in location.paths if path.is_file()), None)
        if found is None or str(found.resolve()) not in self.paths:
            alike = (Path(path) for path in sorted(self.paths) if Path(path).name == PurePath(location.file).name)
            found = next((path for path in alike if path.is_file() and (found is None or _same(path, found))), found)
        return {"name": found.name, "path": str(found.resolve())} if found is not None else None

    def source(self, text: Text) -> Object:
        """The source of a PTX text: its file if it is there unchanged, else a number."""
        path = Path(text.name)
        try:
            if path.is_file() and path.read_text() == text.text:
                return {"name": path.name, "path": str(path.resolve())}
        except (OSError, ValueError):
            pass
        number = self._numbers.setdefault(text.text, len(self._numbers) + 1)
        return {"name": path.name, "sourceReference": number, "origin": "PTX of the launch"}

    def text(self, number: int) -> str:
        """The text of a number. Raises Refused."""
        found = next((text for text, n in self._numbers.items() if n == number), None)
        if found is None:
            raise RefusedRequest(f"sourceReference {number}: there is no such text")
        return found


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False


@dataclass(frozen=True)
class CodeLine:
    """A line that a kernel has instructions of.

    path: of its file; "" for a PTX text without one.
    line: its number.
    file: as the compiler wrote it; "" for a line of PTX.
    """

    path: str
    line: int
    file: str = ""

    @property
    def ptx(self) -> bool:
        return not self.file

    @property
    def place(self) -> str:
        """The line as the motor's breakpoints name it."""
        return f"ptx:{self.line}" if self.ptx else f"{self.file}:{self.line}"


class KernelPlaces:
    """The places of a kernel.

    kernel: it.
    name: as people write it.
    texts: PTX without a file.
    """

    def __init__(self, kernel: CompiledKernel, name: str, texts: Texts) -> None:
        self.kernel, self.name, self.texts = kernel, name, texts
        self.text = kernel.sites[0].span.source
        self.ptx = texts.source(self.text)
        self.order = lines_of(kernel).order
        self._ranks = {site: rank for rank, site in enumerate(self.order)}
        self._sources: dict[tuple[str, int], Object | None] = {}
        self._lines: tuple[int, dict[CodeLine, list[int]]] = -1, {}

    def source(self, location: Location) -> Object | None:
        """The file of a line of the program, if it is there."""
        key = location.file, len(self.texts.paths)
        if key not in self._sources:
            self._sources[key] = self.texts.file(location)
        return self._sources[key]

    @property
    def lines(self) -> dict[CodeLine, list[int]]:
        """Line -> sites of its instructions, in the order of the text; a line where a function was inlined has those of the
        function, too.
        """
        known = len(self.texts.paths)
        if self._lines[0] != known:
            found: dict[CodeLine, list[int]] = {}
            for site in self.order:
                for line in self._lines_of(self.kernel.sites[site]):
                    found.setdefault(line, []).append(site)
            self._lines = known, found
        return self._lines[1]

    def _lines_of(self, instruction: Instruction) -> Iterator[CodeLine]:
        yield CodeLine(self.ptx.get("path", ""), instruction.span.line)
        location = instruction.span.location
        for at in location.chain if location is not None else ():
            source = self.source(at)
            if source is not None:
                yield CodeLine(source["path"], at.line, at.file)

    def in_source(self, source: Object) -> list[CodeLine]:
        """Lines with instructions in a source of the client's, ascending."""
        number, path = source.get("sourceReference", 0), source.get("path", "")
        if number and number == self.ptx.get("sourceReference"):
            return sorted((n for n in self.lines if n.ptx), key=lambda n: n.line)
        path = str(Path(path).resolve()) if path else ""
        return sorted((n for n in self.lines if path and n.path == path), key=lambda n: n.line)

    def from_line(self, source: Object, line: int) -> CodeLine | None:
        """The first line with instructions from a line on; None if the source has none there."""
        found = self.in_source(source)
        at = bisect_left(found, line, key=lambda n: n.line)
        return found[at] if at < len(found) else None

    # instructions by address ------------------------------------------------------------------------------------------------
    def address(self, site: int) -> str:
        """The address of an instruction, as a client is told."""
        return f"0x{CODE + STRIDE * self._ranks[site]:x}"

    def rank(self, reference: str, offset: int = 0) -> int:
        """Number of an instruction in the order of the text; it may lie outside the kernel. Raises Refused.

        reference: address of an instruction.
        offset: bytes behind it.
        """
        try:
            rank, rest = divmod(int(reference, 0) + offset - CODE, STRIDE)
        except ValueError:
            raise RefusedRequest(f"{reference!r} is no address of an instruction") from None
        if rest:
            raise RefusedRequest(f"{reference}{offset:+d}: instructions are {STRIDE} bytes apart, and begin at 0x{CODE:x}")
        return rank

    def disassembled(self, rank: int, count: int) -> list[Object]:
        """Instructions from one on, with a row for each number outside the kernel."""
        return [self._row(n) for n in range(rank, rank + count)]

    def _row(self, rank: int) -> Object:
        address = f"0x{max(0, CODE + STRIDE * rank):x}"
        if not 0 <= rank < len(self.order):
            return {"address": address, "instruction": "(outside the kernel)", "presentationHint": "invalid"}
        span = self.kernel.sites[self.order[rank]].span
        row: Object = {"address": address, "instruction": " ".join(span.text.split())}
        location = span.location
        source = self.source(location) if location is not None else None
        if location is not None and source is not None:
            row["location"], row["line"] = source, location.line
        else:
            row["location"], row["line"] = self.ptx, span.line
        return row
