"""The work of a compilation grows no faster than its kernel, and each analysis looks at the time limit.

Work is counted: lines that are executed, those of comprehensions too. No clock is read.
"""

import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import mmulator
from mmulator.base.codegen.locks import remaining, time_limit
from mmulator.base.source import Source
from mmulator.compiler.kernel import Jit
from mmulator.ptx.parser import parse_module
from mmulator.ptx.program.calls import outline_of
from mmulator.ptx.program.image import ModuleImage
from mmulator.ptx.verify import verify
from mmulator.runtime.options import DEFAULT, CompileOptions
from mmulator.sanitizer.instrument import SANITIZE
from tests.support.growing import SHAPES, grown

OPTIONS = {"plain": DEFAULT, "sanitized": CompileOptions(events=SANITIZE, watched=True)}
ROOT = str(Path(mmulator.__file__).parent)
COUNTED = tuple(f"{ROOT}/{folder}/" for folder in ("ptx", "program", "compiler"))
BLOCK = Jit._write.__code__  # a block has a bounded size


class Work:
    """The lines that were executed, by function. unseen: the most of the analyses' between two looks at the time limit, and
    where it ended.
    """

    def __init__(self) -> None:
        self.lines: Counter[CodeType] = Counter()
        self.unseen = (0, "")
        self._here, self._last = 0, remaining.__code__

    def called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code is remaining.__code__ and frame.f_back is not None:
            by = frame.f_back.f_code
            if not by is self._last is BLOCK:
                self.unseen = max(self.unseen, (self._here, f"{by.co_qualname}:{frame.f_back.f_lineno}"))
            self._here, self._last = 0, by
        return self.line if code.co_filename.startswith(COUNTED) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines[frame.f_code] += 1
        self._here += 1
        return self.line


def work(text: str, options: CompileOptions) -> Work:
    """The work of a compilation up to LLVM's text."""
    counted = Work()
    before = sys.gettrace()
    with time_limit(1e6):
        sys.settrace(counted.called)
        try:
            tree = parse_module(Source("grown.ptx", text))
            assert verify(tree) == ()
            kernel = next(f for f in tree.functions if f.is_entry)
            Jit(tree, kernel, ModuleImage(outline_of(tree)), "sm_90", options).written()
        finally:
            sys.settrace(before)
    return counted


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_work_is_linear(shape: str, options: str) -> None:
    work(grown(shape, 24), OPTIONS[options])  # what is done once
    small, large = (work(grown(shape, n), OPTIONS[options]) for n in (110, 220))
    whole = large.lines.total()
    assert whole < 2.15 * small.lines.total()
    grew = {c: (small.lines[c], n) for c, n in large.lines.items() if n > 0.03 * whole and n > 2.6 * small.lines[c]}
    assert not grew, {f"{c.co_filename}:{c.co_qualname}": numbers for c, numbers in grew.items()}
    assert large.unseen[0] < 0.12 * whole, f"{large.unseen} of {whole} lines without a look at the time limit"
