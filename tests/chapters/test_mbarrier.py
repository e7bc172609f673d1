"""mbarriers: the word as a chip has it, every form, misuse by name, and who waits for what."""

import itertools
import random

import numpy as np
import pytest

from mmulator.errors import ExecutionFault
from mmulator.evaluation.conformance import mbarriers as sequences
from mmulator.host.cpu import Cpu
from mmulator.matrix.numerics.mbarrier import MOST, Mbarrier, pending_count
from tests.support.mbarriers import recorded
from tests.support.one_block import launch


# the word -----------------------------------------------------------------------------------------------------------
def test_the_model_is_an_h200s() -> None:
    """Every result of every recorded step, and the words that mbarrier.inval brought to memory."""
    r = recorded()
    checked = 0
    for p, known in zip(r.programs, r.known):
        b = Mbarrier.init(p.count)
        for step, want in zip(p.steps, p.results):
            if not want:
                continue
            got, b = sequences.apply(r.operations[step.operation], step, b, list(p.results))
            assert {lane: got[lane] for lane in want} == want, sequences.told(p, p.steps.index(step))
            checked += len(want)
        if known:
            assert b.encode() == p.word
    assert checked > 20_000 and r.known.sum() > 100


def test_the_machine_is_an_h200() -> None:
    """The same sequences in a kernel."""
    r, cpu = recorded(), Cpu("sm_90")
    module = cpu.load(sequences.kernel("sm_90a", r.operations, r.most))
    results, words = sequences.run(cpu, module, r.programs, r.most)
    for p, got, word, known in zip(r.programs, results, words, r.known):
        for n, want in enumerate(p.results):
            assert {lane: int(got[n, lane]) for lane in want} == want
        assert not known or int(word) == p.word


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_random_sequences(seed: int, gpu: bool) -> None:
    """The kernel and the model, on sequences of all forms, those that no GPU is asked for too; a difference is found."""
    cpu, found = Cpu("sm_90"), sequences.programs(seed, 400, 0.4, gpu)
    module = cpu.load(sequences.kernel())
    results, words = sequences.run(cpu, module, found)
    compared, wrong, first = sequences.differences(found, results, words)
    assert compared > 8000 and not wrong, first
    words[7] ^= 1 << 43
    assert sequences.differences(found, results, words)[1] == 1


def test_words_of_small_counts() -> None:
    """All counts to 5, all arrivals and bytes: encode and decode are inverse, a phase ends with the last of both."""
    for count, pending, bytes, phase in itertools.product(range(1, 6), range(6), range(-3, 4), range(2)):
        b = Mbarrier(count, pending, bytes, phase)
        assert Mbarrier.decode(b.encode()) == b
        for arrivals, came in itertools.product(range(pending + 1), range(-3, 4)):
            after = b.change(arrivals, came)
            over = arrivals == pending and came == bytes
            assert after.phase == phase ^ over
            assert (after.pending, after.bytes) == ((count, 0) if over else (pending - arrivals, bytes - came))


def test_limits_of_the_word() -> None:
    chance = random.Random(1)
    assert Mbarrier.init(32).encode() == 0x7FFF0000_001FFFC0
    for _ in range(2000):
        b = Mbarrier(chance.randint(1, MOST), chance.randint(0, MOST), chance.randint(-MOST, MOST), chance.getrandbits(1))
        assert Mbarrier.decode(b.encode()) == b and b.encode() < 1 << 64
        assert pending_count(b.state) == (b.pending or 1 << 20)
    assert Mbarrier.init(1).legal(1, -MOST) and not Mbarrier.init(1).legal(2) and not Mbarrier.init(1).legal(0, -MOST - 1)


# misuse -------------------------------------------------------------------------------------------------------------
ONE = """.shared .align 8 .b64 full[4]; mov.u64 d1, full; cvta.shared.u64 d2, d1; setp.ne.u32 p1, t, 0;
@p1 bra GO; mbarrier.init.shared.b64 [full+8], 2; GO: bar.sync 0;"""

# lanes that arrive together -------------------------------------------------------------------------------------------
FORMS = {
    "mbarrier.arrive.shared.b64 _, [r2], r3;": 90, "mbarrier.arrive.shared.b64 _, [r2];": 80,
    "mbarrier.arrive_drop.shared.b64 _, [r2];": 80, "mbarrier.arrive.expect_tx.shared.b64 _, [r2], 0;": 90,
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r2];": 90,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", [80, 90])
def test_lanes_of_one_instruction_arrive_as_one_number(form: str, target: int) -> None:
    """An H200, asked for 135 launches, ends those with CUDA_ERROR_LAUNCH_FAILED where an instruction's lanes arrive at one
    mbarrier more often than is pending, though the first of them complete the phase; chips before sm_90 take them in turn."""
    if FORMS[form] > target:
        return
    many = "r3" in form
    for count, lanes, barriers in itertools.product((1, 2, 3, 16, 31, 32, 64), (1, 2, 3, 16, 17, 32), (1, 2)):
        body = f"""{{ .shared .align 8 .b64 bar[2]; setp.ne.u32 p1, t, 0; @p1 bra GO;
mbarrier.init.shared.b64 [bar], {count}; mbarrier.init.shared.b64 [bar+8], {count}; GO: bar.sync 0;
and.b32 r1, t, {barriers - 1}; mov.u32 r2, bar; mad.lo.u32 r2, r1, 8, r2; add.u32 r3, r1, 1;
setp.ge.u32 p1, t, {lanes}; @p1 bra END; {form} END: bar.sync 0; }}"""
        come = [sum(1 + many * k for lane in range(lanes) if lane % barriers == k) for k in range(barriers)]
        together = target >= 90 and any(n > count for n in come)
        gone = "drop" in form and any(n > count for n in come)  # who dropped is awaited no more
        if together or gone:
            with pytest.raises(ExecutionFault, match="awaits"):
                launch(body, target=f"sm_{target}" + "a" * (target >= 90))
        else:
            launch(body, target=f"sm_{target}" + "a" * (target >= 90))


def test_memory_may_be_used_again() -> None:
    """After mbarrier.inval the words are any others', and may be a barrier again; init may be repeated."""
    body = (
        "{ setp.ne.u32 p1, t, 0; @p1 bra END; mbarrier.inval.shared.b64 [full+8]; st.shared.b64 [full+8], 77;"
        "mbarrier.init.shared.b64 [full+8], 5; mbarrier.init.shared.b64 [full+8], 1;"
        "mbarrier.arrive.shared.b64 d3, [full+8]; mbarrier.test_wait.shared.b64 p2, [full+8], d3;"
        "selp.u32 r1, 1, 0, p2; st.global.u32 [out], r1; END: }"
    )
    assert launch(ONE + body)[0][0, 0] == 1


def test_more_mbarriers_than_are_known() -> None:
    """Beyond those that a cluster keeps account of, what a word holds is not judged, and all else is as ever."""
    body = """.shared .align 8 .b64 many[2048]; mov.u32 r1, 0; mov.u32 r2, many; setp.ne.u32 p1, t, 0; @p1 ret;
L: mbarrier.init.shared.b64 [r2], 1; mbarrier.arrive.shared.b64 d1, [r2]; mbarrier.test_wait.shared.b64 p2, [r2], d1;
@!p2 trap; add.u32 r2, r2, 8; add.u32 r1, r1, 1; setp.lt.u32 p1, r1, 2048; @p1 bra L; st.global.u32 [out], r1;"""
    assert launch(body)[0][0, 0] == 2048


# cp.async.mbarrier.arrive ---------------------------------------------------------------------------------------------
COPIED = """
.shared .align 16 .b8 buffer[512]; .shared .align 8 .b64 full;
mov.u32 r1, buffer; mad.lo.u32 r1, t, 4, r1; setp.ne.u32 p1, t, 0; mov.u32 r5, 77; st.shared.u32 [r1], r5;
@p1 bra GO; mbarrier.init.shared.b64 [full], {count};
GO: bar.sync 0;
cp.async.ca.shared.global [r1], [in0], 4;
cp.async.mbarrier.arrive{noinc}.shared.b64 [full];
{own}
W: mbarrier.try_wait.parity.shared.b64 p2, [full], 0;
@!p2 bra W;
xor.b32 r2, t, 31; mov.u32 r3, buffer; mad.lo.u32 r3, r2, 4, r3; ld.shared.u32 r4, [r3]; st.global.u32 [out], r4;
"""
OWN = "mbarrier.arrive.shared.b64 d1, [full];"


@pytest.mark.parametrize("noinc", ["", ".noinc"])
def test_copies_arrive_at_an_mbarrier(noinc: str) -> None:
    """Who has waited sees the copies of all threads: with .noinc they are the arrivals, without they come on top of those."""
    data = np.arange(32, dtype=np.uint32) + 100
    given = COPIED.format(count=32, noinc=noinc, own="" if noinc else OWN)
    for seed in range(12):
        assert (launch(given, data, seed=seed)[0][:, 0] == data[::-1]).all()


def test_an_arrival_before_the_copies_is_too_early() -> None:
    """An arrival that does not wait for the copies lets old bytes be seen, for some seeds."""
    data = np.arange(32, dtype=np.uint32) + 100
    given = COPIED.format(count=32, noinc="", own=OWN).replace("cp.async.mbarrier.arrive.shared.b64 [full];", "")
    seen = {tuple(launch(given, data, seed=seed)[0][:, 0]) for seed in range(24)}
    assert (77,) * 32 in seen
