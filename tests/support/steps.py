"""What a host program does with the kernels of a text of tests/ub, step by step: lines that begin with `//>`.

    //> launch twice A B on s        dependent behind it: with programmatic stream serialisation
    //> copy h A on s                asynchronously; without `on` it waits; `fill A on s`
    //> record e on s; wait t for e; sync s; sync e; sync
    //> allocate P on s; free P on t
    //> read h; write h              the host does

A to G are memory of the device of 1 KiB, h and i pinned memory, m managed memory; s and t are streams that do not block, b one
that does, and without `on` it is the default stream. `launch k A+64 B` gives another address.
"""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mmulator.base.findings import Finding, ordered
from mmulator.host.driver import Driver, Settings
from mmulator.host.driver import findings as told
from mmulator.host.driver.memory import numbers
from mmulator.host.driver.streams import Event, ordering

MARK = "//>"
SIZE = 1024
_KINDS = {"h": "pinned memory", "i": "pinned memory", "m": "managed memory"}


class HostProgram:
    """A driver that does steps. found: the findings so far."""

    def __init__(self, ptx: str, name: str, **settings: Any) -> None:
        self.driver = Driver(Settings(**settings))
        self.found: list[Finding] = []
        self.driver.readers[:] = [lambda kernel, findings, error, launches: self.found.extend(findings)]
        self.loaded = self.driver.load(ptx, name) if ptx.strip() else None
        self.memory: dict[str, Any] = {}
        self.streams: dict[str, Any] = {"": self.driver.default_stream}
        self.events: dict[str, Event] = {}

    def at(self, word: str) -> int:
        """The address that a word names."""
        name, _, offset = word.partition("+")
        if name not in self.memory:
            self.memory[name] = found = self.driver.memory.allocate(SIZE, _KINDS.get(name, "device memory"))
            numbers[found.address] = len(self.memory)  # whatever else this process has allocated
        return int(self.memory[name].address) + int(offset or 0)

    def stream(self, name: str) -> Any:
        if name not in self.streams:
            self.streams[name] = self.driver.new_stream(blocks=name == "b")
        return self.streams[name]

    def do(self, step: str) -> None:
        order = ordering[-1]
        word, *rest = step.split()
        on = rest[rest.index("on") + 1] if "on" in rest else None
        names = rest[: rest.index("on")] if on is not None else [r for r in rest if r != "dependent"]
        stream = self.stream(on or "")
        match word:
            case "launch":
                assert self.loaded is not None
                function = self.loaded.function(names[0])
                params = b"".join(self.at(name).to_bytes(8, "little") for name in names[1:])
                shape = function.check((1, 1, 1), (64, 1, 1), params, 0, None, False)
                self.driver.run(function, shape, params, (), stream, dependent="dependent" in rest)
            case "copy" | "fill":
                places = [self.at(name) for name in names]
                act = order.copied if word == "copy" else order.filled
                if on is None:
                    act(*places, SIZE)
                else:
                    with order.on(stream):
                        act(*places, SIZE)
            case "allocate":
                order.given(self.at(names[0]), SIZE, stream)
            case "free":
                order.freed(self.at(names[0]), SIZE, stream if on is not None else None, "device memory")
            case "record":
                self.events[names[0]] = Event()
                self.events[names[0]].record(stream)
            case "wait":
                self.stream(names[0]).wait(self.events[names[2]])
            case "sync":
                if not names:
                    order.synchronize()
                elif names[0] in self.events:
                    self.events[names[0]].synchronize()
                else:
                    self.stream(names[0]).synchronize()
            case "read" | "write":
                order.touched(self.at(names[0]), 4, word == "write", order._place())
            case _:
                raise ValueError(step)


def run(ptx: str, name: str, **settings: Any) -> SimpleNamespace:
    """What is found in a program, whose steps stand in its text."""
    program, here = HostProgram(ptx, name, **settings), [0]
    told.places.append(lambda: partial("main at {}:{}".format, name, here[0]))
    try:
        for here[0], text in enumerate(ptx.splitlines(), 1):
            if text.startswith(MARK):
                for step in text.removeprefix(MARK).split(";"):
                    if step.strip():
                        program.do(step.strip())
    finally:
        told.places.pop()
        ordering.clear()
    return SimpleNamespace(findings=tuple(ordered(program.found)))


def line_of(finding: Finding) -> int:
    """The line of the program to which a finding points."""
    return finding.span.line if finding.span is not None else int(finding.location.rpartition(":")[2])


def is_program(file: Path) -> bool:
    return any(line.startswith(MARK) for line in file.read_text().splitlines())
