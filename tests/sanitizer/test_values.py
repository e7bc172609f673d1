"""Values that nobody has written: what is watched, and that nothing is when nobody asks (tests/ub/values has what is found)."""

import mmulator as mm
from mmulator.compiler.kernel import Jit
from mmulator.ptx.program.blocks import build
from mmulator.ptx.program.frames import allocate, liveness
from mmulator.ptx.program.undefined import doubt
from mmulator.runtime.options import CompileOptions
from tests.support import breaches

USES = breaches.ROOT / "values" / "uses.ptx"


def test_nothing_is_watched_when_nobody_asks() -> None:
    module = breaches.module_of(USES, "none")
    kernel = module["uses"]
    jit = Jit(module.tree, kernel.function, kernel.module.loaded.image, "sm_90", CompileOptions())
    assert not jit.doubtful and not any("?" in name for frame in jit.frames.values() for name in frame.types)


def test_what_is_written_on_every_path_is_not_watched() -> None:
    body = "mov.u32 %r5, %u1; add.s32 %r6, %r5, %r1; ld.shared.u32 %r7, [%r4]; st.global.u32 [%rd3], %r6; ret; }"
    module = mm.Module.load(breaches.text(USES).partition("mov.u32 %r5, 1;")[0] + body)
    function = build(module.tree, module["uses"].function).entry
    found = doubt(function, liveness(function))
    assert found.registers == {"%u1", "%r5", "%r6", "%r7"}
    assert found.loaded == {"%r7"} and found.unwritten == {"%u1", "%r5", "%r6"}
    assert [found.memory(n) for n in ("%r5", "%r7")] == [0, 1]
    frame = allocate(function, liveness(function), found.registers)
    assert "%u1?" in frame.slots and "%r1?" not in frame.types
