"""setmaxnreg: registers are counted as ptxas and the chip count them, waited for, and their misuse is named."""

from collections.abc import Sequence

import pytest

from mmulator.errors import ExecutionFault
from mmulator.host.module import Module
from mmulator.host.report import Report
from mmulator.ptx.program.counts import entry_registers

Change = tuple[str, int]
HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def text(directives: str, groups: Sequence[Sequence[Change]]) -> str:
    """Each warpgroup changes its registers as it likes."""
    body = "".join(
        f"setp.ne.u32 p, g, {n}; @p bra N{n};\n"
        + "".join(f"setmaxnreg.{way}.sync.aligned.u32 {count};\n" for way, count in changes)
        + f"N{n}:\n" for n, changes in enumerate(groups)
    )  # fmt: skip
    begin = ".reg .pred p; .reg .b32 g; mov.u32 g, %tid.x; shr.u32 g, g, 7;"
    return f"{HEAD}.visible .entry k() {directives}\n{{\n{begin}\n{body}ret;\n}}\n"


def run(directives: str, groups: Sequence[Sequence[Change]], seed: int = 0) -> Report:
    return Module.load(text(directives, groups), name="k.ptx")["k"].launch(1, 128 * len(groups), [], timeout=600, seed=seed)


# What ptxas 13.0 says: "Used N registers", or C7508 (0)
COUNTS = [
    (".reqntid 384 .maxnreg 168", 184, 168), (".reqntid 384", 184, 0), (".maxntid 384", 184, 0), ("", 184, 0),
    (".maxntid 384 .minnctapersm 1", 184, 168), (".maxntid 384 .minnctapersm 2", 184, 80), (".maxntid 1024", 184, 0),
    (".maxntid 256 .minnctapersm 1", 184, 184), (".maxnreg 170 .maxntid 384", 184, 170), (".maxnreg 100", 184, 100),
    (".reqntid 128 .minnctapersm 3", 184, 168), (".maxntid 100 .minnctapersm 5", 184, 96), (".maxnreg 255", 184, 184),
    (".maxnreg 250 .maxntid 128", 184, 184), (".maxntid 300 .minnctapersm 2 .maxnreg 64", 184, 64),
    (".reqntid 384 .maxnreg 168", 40, 40), (".reqntid 384 .maxnreg 168", 256, 168), (".maxnreg 20", 40, 24),
    (".reqntid 32 .maxnreg 128", 0, 128), (".reqntid 384 .minnctapersm 1", 0, 168),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "most", "count"), COUNTS)
def test_registers_at_the_start_are_those_of_ptxas(directives: str, most: int, count: int) -> None:
    changes = [("dec", 24), *([("inc", most)] if most else [])]
    function = Module.load(text(directives, [changes]))["k"].function
    assert entry_registers(function, [function]) == count


BOUND = ".reqntid 384 .maxnreg 168"
# On an H200 the second of these ends, and the first of HANGS hangs
ENDS = [
    [[("dec", 40)], [("inc", 232)], [("inc", 232)]], [[("dec", 24)], [("inc", 240)], [("inc", 240)]],
    [[("dec", 24), ("inc", 168)]] * 3, [[("inc", 168), ("dec", 168)]] * 3, [[], [], []],
    [[("dec", 24)], [("inc", 240), ("dec", 24)], [("inc", 240), ("dec", 24)]],
]  # fmt: skip
HANGS = [
    [[], [("inc", 240)], [("inc", 240)]], [[("dec", 24)], [("inc", 248)], [("inc", 248)]], [[("dec", 40), ("inc", 176)], [], []],
]  # fmt: skip


@pytest.mark.parametrize("groups", ENDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_who_waits_gets_what_others_release(groups: Sequence[Sequence[Change]], seed: int) -> None:
    assert not run(BOUND, groups, seed=seed).notes


@pytest.mark.parametrize("groups", HANGS)
def test_registers_that_nobody_releases_are_a_deadlock(groups: Sequence[Sequence[Change]]) -> None:
    with pytest.raises(ExecutionFault, match=r"deadlock .* wait for other warps at setmaxnreg.inc") as caught:
        run(BOUND, groups)
    assert "pool" in (caught.value.rule or "")


def test_without_a_bound_it_does_nothing_and_says_so() -> None:
    report = run(".reqntid 384", [[("dec", 40)], [("inc", 232)], [("inc", 24)]])
    assert any("C7508" in note for note in report.notes)


def test_warps_of_a_warpgroup_have_counts_of_their_own() -> None:
    """As on chips: what a warp releases is free for the others. The specification wants one count, and the sanitizer says so."""
    body = (
        "mov.u32 g, %tid.x; setp.lt.u32 p, g, 32; @p bra A; setmaxnreg.dec.sync.aligned.u32 40; ret;"
        "A: setmaxnreg.dec.sync.aligned.u32 48; setmaxnreg.inc.sync.aligned.u32 248; ret;"
    )
    ptx = f"{HEAD}.visible .entry k() .reqntid 128 .maxnreg 168 {{ .reg .pred p; .reg .b32 g; {body} }}\n"
    kernel = Module.load(ptx)["k"]
    kernel.launch(1, 128, [])
    assert "warpgroup-diverged" in {found.rule for found in kernel.launch(1, 128, [], sanitize=True).findings}
