"""The motor of the debugger: the same state at a step from wherever one comes, and stops where they are due."""

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.observation.debug.session import Session
from mmulator.observation.debug.stops import DebugError, Reason, StepScope
from tests.support.ptx_text import stored
from tests.support.sessions import BLACKWELL, GEMM, PIPELINE, launched, of_file

# Two blocks of two warps: lanes part, a function is called, a barrier, an atomic operation.
PARTED = stored("parted")


def parted(use: Callable[[Session], None]) -> np.ndarray:
    out = np.zeros(128, np.int32)
    launched(mm.Module.load(PARTED)["parted"], use, 2, 64, [out], names={"out": out})
    return out


def expected() -> np.ndarray:
    tid = np.arange(64)
    return np.tile(np.where((tid ^ 32) < 12, (tid ^ 32) + 100, 2 * (tid ^ 32)), 2).astype(np.int32)


def line(text: str) -> int:
    return PARTED[: PARTED.index(text)].count("\n") + 1


# the law ----------------------------------------------------------------------------------------------------------------
def walk(session: Session, seed: int, moves: int) -> None:
    """A random walk: at a step the machine is always the same, however one came there."""
    chance = random.Random(seed)
    seen: dict[int, tuple[str, object, int]] = {}
    session.go()
    assert session.stop.reason is Reason.EXITED
    total = session.stop.step
    for _ in range(moves):
        match chance.randrange(6):
            case 0:
                session.goto(chance.randrange(total))
            case 1 if session.stop.step > 0:
                session.step(lines=False, back=True)
            case 2 if session.stop.step > 0:
                session.step(back=True)
            case 3 if not session.stop.over:
                session.step(chance.randrange(1, 4), lines=False)
            case 4 if not session.stop.over:
                session.step()
            case 5 if seen:
                session.goto(chance.choice([*seen]))
        stop = session.stop
        if not stop.over:
            session.scope = chance.choice([*StepScope])
            state = session.machine.digest(), (stop.focus and (stop.focus.block, stop.focus.warp)), stop.site
            assert seen.setdefault(stop.step, state)[0] == state[0], f"seed {seed}, step {stop.step}"
            assert seen[stop.step][2] == state[2]
    assert len(seen) > moves // 3


@pytest.mark.parametrize("file", [PIPELINE, GEMM, BLACKWELL], ids=["pipeline", "gemm", "tcgen05"])
def test_a_step_is_the_same_from_wherever_one_comes(file: Path) -> None:
    report, arrays = of_file(file, lambda session: walk(session, 1, 30))
    name = "D" if "D" in arrays else "C"
    with np.load(file.parent / "expected.npz") as kept:
        np.testing.assert_array_equal(arrays[name].view(np.uint8), kept[name].view(np.uint8))
    assert report.threads == 1


@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_where_lanes_part(seed: int) -> None:
    np.testing.assert_array_equal(parted(lambda session: walk(session, seed, 40)), expected())


@pytest.mark.parametrize("seed", [0, 3])
def test_a_checkpoint_is_the_launch_as_it_was(seed: int) -> None:
    """A launch of 4,000 blocks, in order or not, with checkpoints and without: the same states, results and counts."""
    states: list[list[str]] = []
    left: list[tuple[np.ndarray, int]] = []
    for apart in (20_000, 1 << 40):
        found: list[str] = []

        def use(session: Session) -> None:
            session.checkpoints.apart = apart  # noqa: B023
            chance = random.Random(seed)
            session.go()
            total = session.stop.step
            for _ in range(25):
                session.goto(chance.randrange(total))
                found.append(session.machine.digest())  # noqa: B023
                session.step(back=True)
                found.append(session.machine.digest())  # noqa: B023
            session.breakpoints.add(f"ptx:{line('bar.sync')}", "ctaid.x % 1500 == 3 && tid.x == 33")
            session.goto(total - 1)
            found.append(str(session.go(back=True)))  # noqa: B023
            assert bool(session.checkpoints.points) == (apart < 1 << 40)  # noqa: B023

        out = np.zeros(64 * 4000, np.int32)
        report = launched(mm.Module.load(PARTED)["parted"], use, 4000, 64, [out], seed=seed, order=seed or None)
        left.append((out, report.total_instructions))
        states.append(found)
    assert states[0] == states[1]
    np.testing.assert_array_equal(left[0][0], left[1][0])
    assert left[0][1] == left[1][1]


def test_a_step_back_costs_a_moment() -> None:
    """Fifty milliseconds of an idle processor, several times that of one that others use."""

    def use(session: Session) -> None:
        session.goto(100_000)
        for back, most in ((True, 0.4), (False, 0.05)):
            took = []
            for _ in range(9):
                before = time.process_time()
                session.step(lines=False, back=back)
                took.append(time.process_time() - before)
            assert sorted(took)[4] < most, took

    of_file(GEMM, use)


# stops ------------------------------------------------------------------------------------------------------------------
def test_a_condition_chooses_lanes() -> None:
    def use(session: Session) -> None:
        session.breakpoints.add(f"ptx:{line('bar.sync')}", "tid.x == 40 && ctaid.x == 1 && %r3 > 7")
        stop = session.go()
        assert stop.reason is Reason.BREAKPOINT and stop.focus is not None and stop.hits == (1,)
        assert (stop.focus.block, stop.focus.warp) == (1, 1) and stop.instruction is not None
        assert stop.instruction.mnemonic == "bar.sync"
        here = stop.step
        assert session.machine.register(session.machine.warp(1, 1), "%r3")[8] == 80
        assert session.go().reason is Reason.EXITED
        assert session.go(back=True).step == here and session.stop.reason is Reason.BREAKPOINT
        assert session.go(back=True).reason is Reason.BEGIN and session.stop.step == 0

    np.testing.assert_array_equal(parted(use), expected())


def test_an_element_that_is_stored_stops_it_in_both_directions() -> None:
    def use(session: Session) -> None:
        session.breakpoints.watch("out[70]:b32")
        stop = session.go()
        assert stop.reason is Reason.WATCHPOINT and "out[70]" in stop.text and "-> 0x0000004c" in stop.text
        behind = stop.step
        assert session.value("out[70]")[1] == 76
        assert session.go().reason is Reason.EXITED
        stop = session.go(back=True)
        assert stop.reason is Reason.WATCHPOINT and stop.step == behind - 1 and session.value("out[70]")[1] == 0
        assert stop.instruction is not None and stop.instruction.mnemonic == "st.global.u32"

    parted(use)


def test_words_of_shared_memory_are_watched_in_every_block() -> None:
    def use(session: Session) -> None:
        session.breakpoints.watch("shared tile+8")
        found = []
        while session.go().reason is Reason.WATCHPOINT:
            found.append(session.stop.text.partition(";")[0])
        assert found == [f"tile + 8 in block ({n},0,0): 0 -> 0x00000066" for n in range(2)]

    parted(use)


def test_a_step_over_a_call_and_out_of_it() -> None:
    def use(session: Session) -> None:
        session.breakpoints.add(f"ptx:{line('call (')}")
        stop = session.go()
        call = stop.step
        stop = session.step(over=True)
        assert stop.ptx_line == line("bra JOIN")
        assert session.step(over=True, back=True).step == call
        stop = session.step()
        assert stop.ptx_line == line("add.u32 t")
        assert session.machine.warp(0, 0).places[0].function == "twice"
        assert session.finish().ptx_line == line("bra JOIN")
        session.step(back=True)
        assert session.stop.ptx_line == line("  ret;\n}\n.visible")
        assert session.finish(back=True).step == call

    parted(use)


def test_scopes_say_whose_instructions_are_steps() -> None:
    def use(session: Session) -> None:
        session.goto(10)
        session.scope = StepScope.BLOCK
        first = session.stop.focus
        warps = set()
        for _ in range(60):
            session.step(lines=False)
            if session.stop.text:
                assert session.stop.text == "all threads of the block (0,0,0) have exited"
                break
            assert session.stop.focus is not None and first is not None and session.stop.focus.block == first.block
            warps.add(session.stop.focus.warp)
        assert warps == {0, 1}

    parted(use)


def test_a_fault_stops_it_with_the_machine_to_look_at() -> None:
    wrong = PARTED.replace("add.u64 %rd3, %rd1, %rd2;", "add.u64 %rd3, %rd1, %rd2; add.u64 %rd3, %rd3, 65536;")

    def use(session: Session) -> None:
        stop = session.go()
        assert stop.reason is Reason.FAULT and stop.instruction is not None and stop.instruction.mnemonic == "st.global.u32"
        assert stop.focus is not None
        warp = session.machine.warp(stop.focus.block, stop.focus.warp)
        assert session.machine.register(warp, "%r8")[0] == expected()[32 * warp.warp]
        session.step(lines=False, back=True)
        assert session.stop.step == stop.step - 1 and session.stop.instruction.mnemonic == "add.u64"
        assert session.go().reason is Reason.FAULT and session.stop.step == stop.step
        with pytest.raises(DebugError, match="has faulted"):
            session.go()

    out = np.zeros(128, np.int32)
    with pytest.raises(ExecutionFault, match="which has 512"):
        launched(mm.Module.load(wrong)["parted"], use, 2, 64, [out])


def test_a_deadlock_stops_it() -> None:
    hangs = PARTED.replace("bar.sync 0;", "setp.lt.u32 %p2, %r0, 32;\n  @%p2 bar.sync 1, 64;")

    def use(session: Session) -> None:
        stop = session.go()
        assert stop.reason is Reason.DEADLOCK and "barrier 1" in stop.text
        assert session.machine.warps(0)[0].places[0].state == "barrier"

    with pytest.raises(ExecutionFault):
        launched(mm.Module.load(hangs)["parted"], use, 2, 64, [np.zeros(128, np.int32)])


def test_phases_of_mbarriers_stop_it() -> None:
    """Of the first full mbarrier of both blocks of a pair; where tiles are, is none."""

    def use(session: Session) -> None:
        session.breakpoints.mbarrier("memory+163840")
        session.breakpoints.mbarrier("0x400")
        stops = []
        while session.go().reason is Reason.MBARRIER:
            stops.append((session.stop.step, session.stop.text.partition(";")[0]))
        blocks = [re.search(r"in block (\S+): phase (\d) is complete", text).groups() for _, text in stops]  # type: ignore[union-attr]
        for n in range(4):
            phases = [int(phase) for block, phase in blocks if block == f"({n},0,0)"]
            assert phases and phases == [*range(len(phases))]
        assert session.breakpoints[2].hits == 0
        assert session.go(back=True).reason is Reason.MBARRIER and session.stop.step == stops[-1][0] - 1

    of_file(PIPELINE, use)


def test_steps_are_the_same_under_the_sanitizer() -> None:
    """So a rule may be asked for at any stop."""

    def use(session: Session) -> None:
        def seen() -> list[tuple[int, object]]:
            out = []
            for step in range(100, 12_000, 700):
                stop = session.goto(step)
                out.append((stop.site, stop.focus))
            return out

        before = seen()
        session.breakpoints.rule("all")
        session.bind()
        assert seen() == before

    of_file(PIPELINE, use)


def test_a_rule_that_is_broken_stops_it() -> None:
    """Without the barrier the warps race for the words of shared memory."""
    racing = PARTED.replace("bar.sync 0;", "")

    def use(session: Session) -> None:
        session.goto(20)
        session.breakpoints.rule("races")
        session.bind()
        assert session.machine.running == (session.focus.block, session.focus.warp)
        stop = session.go()
        assert stop.reason is Reason.FINDING and "race" in stop.text and stop.hits == (1,)
        behind = stop.step
        while session.go().reason is Reason.FINDING:
            behind = session.stop.step
        assert session.go(back=True).step == behind - 1
        assert session.stop.instruction is not None and "shared" in session.stop.instruction.mnemonic

    report = launched(mm.Module.load(racing)["parted"], use, 2, 64, [np.zeros(128, np.int32)])
    assert {f.rule for f in report.findings} >= {"race-shared"} or report.findings
