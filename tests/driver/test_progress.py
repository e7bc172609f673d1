"""How far a launch is: a bar where somebody looks, and an answer to a signal; the launch goes on."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from mmulator.host.driver import Driver, Settings, progress

# A loop whose length depends on random numbers: LLVM, which compiles a hot kernel again, cannot compute the end of a plain count.
SPIN = """.version 8.0
.target sm_80
.address_size 64
.entry spin(.param .u32 count) {
  .reg .b32 i, n, x, y; .reg .pred p;
  mov.u32 i, 0;
  mov.u32 x, 1;
  ld.param.u32 n, [count];
L: mad.lo.u32 x, x, 1664525, 1013904223;
  shr.u32 y, x, 31;
  add.u32 i, i, y;
  setp.lt.u32 p, i, n;
  @p bra L;
  ret;
}"""


class Sink:
    """A terminal of so many columns, and what is done when something is drawn."""

    def __init__(self, columns: int, seen: Callable[[], object] = lambda: None) -> None:
        self.columns, self.seen, self.drawn, self.cleared = columns, seen, list[str](), 0

    def room(self) -> int:
        return self.columns

    def draw(self, text: str) -> None:
        self.drawn.append(text)
        self.seen()

    def clear(self) -> None:
        self.cleared += 1


def test_a_long_launch_is_shown_and_says_where_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    for number in (signal.SIGUSR1, signal.SIGQUIT):  # whoever started the tests may ignore them, and so may an earlier test
        if signal.getsignal(number) is not progress._ask:
            signal.signal(number, signal.SIG_DFL)
    driver = Driver(Settings(threads=1))
    assert signal.getsignal(signal.SIGUSR1) is progress._ask
    signals, sent = iter((signal.SIGUSR1, signal.SIGQUIT)), [0]

    def ask() -> None:
        """The second signal comes behind the answer to the first: signals that come together have one answer."""
        if len(sink.drawn) > 1 and sink.cleared == sent[0] < 2:
            sent[0] += 1
            os.kill(os.getpid(), next(signals))

    sink = Sink(79, ask)
    monkeypatch.setattr(progress, "sink", [sink])
    function = driver.load(SPIN, "spin.ptx").function("spin")
    driver.launch(function, 4, 32, np.uint32(20_000_000).tobytes())
    assert all(text.startswith("spin ") and len(text) <= 79 for text in sink.drawn) and sink.cleared
    assert any("/4 blocks [" in text for text in sink.drawn)
    said = capsys.readouterr().err
    assert said.count("mmulator: spin, 0:0") == 2 and "of 4 blocks are done; block (" in said and "spin.ptx:" in said
    assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL and not progress._running
    shown = len(sink.drawn)
    driver.change(replace(driver.settings, progress="never"))
    driver.launch(function, 4, 32, np.uint32(400_000).tobytes())
    assert len(sink.drawn) == shown
    os.kill(os.getpid(), signal.SIGUSR1)
    assert capsys.readouterr().err == "mmulator: no launch is running\n"


def test_a_bar_fits_where_it_is_drawn() -> None:
    launching = progress.Launching("_ZN3foo3barI" + "x" * 200 + "E", "auto")
    try:
        launching.counted(1701, 4096)
        launching.started -= 24.0
        assert launching.text(launching.started + 24.0, 79).endswith("1701/4096 blocks [########            ] 0:34 left")
        assert {len(launching.text(launching.started + 24.0, room)) for room in (30, 50, 79)} == {30, 50, 79}
    finally:
        launching.close()
    assert [progress.clock(s) for s in (0.4, 59.6, 3723)] == ["0:00", "1:00", "1:02:03"]
