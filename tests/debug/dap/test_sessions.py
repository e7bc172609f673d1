"""Launches under an adapter, as a client sees them: stops, steps forwards and back, breakpoints of each kind, variables."""

import base64
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.support import places
from tests.support.nvcc import compiled
from tests.support.protocol import Session

HERE = Path(__file__).parent / "programs"
PTX, LOOP = HERE / "loop.ptx", HERE / "loop.toml"


def line_of(text: str, path: Path = PTX) -> int:
    """Number of the only line that has a text."""
    found = [n for n, line in enumerate(path.read_text().split("\n"), 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]


ADD, STORE, BARRIER = line_of("add.f32 %f2"), line_of("st.global"), line_of("bar.sync")


def seen(session: Session) -> tuple[Any, ...]:
    """All that a client sees at a stop, without the numbers by which it asks."""
    frames = [(f["name"], f["line"], f.get("instructionPointerReference")) for f in session.frames()]
    names = ("Registers", "Arguments", "Lanes", "Barriers")
    scopes = {n: {v["name"]: v["value"] for v in session.scope(n).values()} for n in names}
    threads = [t["name"] for t in session.client("threads")["threads"]]
    return frames, scopes, threads, session.value("x[1]")


# stops and steps -----------------------------------------------------------------------------------------------------------
def test_a_launch_stops_where_it_begins_and_runs_to_its_end() -> None:
    with Session() as session:
        stop = session.run(LOOP, stopOnEntry=True).stopped()
        assert stop["reason"] == "entry" and stop["allThreadsStopped"]
        assert [t["name"] for t in session.client("threads")["threads"]] == ["block (0,0,0) warp 0", "block (0,0,0) warp 1"]
        (frame,) = session.frames()
        assert frame["source"] == {"name": "loop.ptx", "path": str(PTX)} and frame["line"] == line_of("ld.param.u64")
        assert session.over() == 0


def test_without_breakpoints_nothing_stops_it() -> None:
    with Session() as session:
        session.run(LOOP)
        assert session.ended() == 0
        assert not [e for e in session.client.events if e["event"] == "stopped"]


def test_steps_back_show_what_was_there() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        assert session.line() == ADD
        session.breakpoints(PTX)
        before = [seen(session)]
        for _ in range(8):
            assert session.go("next")["reason"] == "step"
            before.append(seen(session))
        assert len({repr(s) for s in before}) == len(before)
        for there in reversed(before[:-1]):
            session.go("stepBack", granularity="instruction")
            assert seen(session) == there
        for there in before[1:]:
            session.go("stepIn", granularity="instruction")
            assert seen(session) == there


def test_reverse_continue_goes_to_the_breakpoint_before_and_to_the_beginning() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        shown = [seen(session)]
        for _ in range(3):
            assert session.go()["reason"] == "breakpoint"
            shown.append(seen(session))
        for there in reversed(shown[:-1]):
            assert session.go("reverseContinue")["reason"] == "breakpoint"
            assert seen(session) == there
        assert "first instruction" in session.go("reverseContinue")["description"]
        session.go("reverseContinue")
        assert "there is nothing before it" in session.client.output("console")
        assert session.go()["reason"] == "breakpoint" and seen(session) == shown[0]


def test_another_warp_is_stepped_when_a_client_asks_for_it() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        threads = {t["name"]: t["id"] for t in session.client("threads")["threads"]}
        other = threads["block (0,0,0) warp 1"]
        assert other != session.thread
        at = session.frames(other)[0]["line"]
        session.breakpoints(PTX)
        session.thread = other
        stop = session.go("next")
        assert stop["threadId"] == other and session.line() > at


def test_a_launch_that_is_over_can_be_gone_back_into() -> None:
    with Session() as session:
        session.breakpoints(PTX, STORE)
        session.run(LOOP, stopAtEnd=True).stopped()
        session.breakpoints(PTX)
        stop = session.go()
        assert "over" in stop["description"] and session.client("threads")["threads"][0]["id"] == session.thread
        assert session.frames() == []
        assert session.value_of("x[1]") == "16.0"
        session.breakpoints(PTX, STORE)
        assert session.go("reverseContinue")["reason"] == "breakpoint" and session.line() == STORE
        session.breakpoints(PTX)
        session.go()
        assert session.over() == 0


def test_pause_stops_a_launch_that_runs(tmp_path: Path) -> None:
    (tmp_path / "long.ptx").write_text(PTX.read_text().replace("%r5, 4;", "%r5, 100000000;"))
    (tmp_path / "long.toml").write_text(LOOP.read_text().replace("loop.ptx", "long.ptx"))
    with Session() as session:
        session.run(tmp_path / "long.toml", stopOnEntry=True).stopped()
        for _ in range(2):
            session.client("continue", threadId=session.thread)
            assert session.client("threads")["threads"], "answered while the launch runs"
            session.client("pause", threadId=session.thread)
            assert session.stopped()["reason"] == "pause"
        first = seen(session)
        session.client("continue", threadId=session.thread)
        told = session.breakpoints(tmp_path / "long.ptx", ADD)
        assert told[0]["verified"] and session.stopped()["reason"] == "breakpoint" and seen(session) != first


def test_a_paused_program_stops_at_its_next_launch() -> None:
    with Session() as session:
        session.client("pause", threadId=1)
        assert session.run(LOOP).stopped()["reason"] == "entry"


def test_restart_sets_all_breakpoints_again() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        first = seen(session)
        session.go()
        session.client("restart")
        assert session.stopped()["reason"] == "breakpoint" and seen(session) == first


# breakpoints -----------------------------------------------------------------------------------------------------------------
def test_breakpoints_are_told_when_their_kernel_is_launched() -> None:
    with Session() as session:
        told = session.breakpoints(PTX, 1, ADD, 4000)
        other = session.breakpoints(HERE / "other.ptx", 3)
        assert not any(b["verified"] for b in told + other) and {b["reason"] for b in told + other} == {"pending"}
        session.run(LOOP, stopOnEntry=True).stopped()
        changed = {
            e["body"]["breakpoint"]["id"]: e["body"]["breakpoint"] for e in session.client.events if e["event"] == "breakpoint"
        }
        first, add, behind = (changed[b["id"]] for b in told)
        assert first["verified"] and first["line"] == line_of("ld.param.u64") and "moved from line 1" in first["message"]
        assert add["verified"] and add["line"] == ADD and "message" not in add
        assert not behind["verified"] and "the last is line" in behind["message"]
        assert "no instruction of loop was compiled from this file" in changed[other[0]["id"]]["message"]
        lines = session.client("breakpointLocations", source={"path": str(PTX)}, line=1, endLine=ADD)["breakpoints"]
        assert lines[0] == {"line": line_of("ld.param.u64")} and lines[-1] == {"line": ADD}


def test_conditions_are_over_lanes() -> None:
    with Session() as session:
        given = [{"line": ADD, "condition": "tid.x == 37 && ctaid.x == 1 && %r5 == 2"}, {"line": STORE, "condition": "tid.x =="}]
        told = session.breakpoints(PTX, *given)
        session.run(LOOP).stopped()
        assert session.value("ctaid.x") == "1" and session.value("%r5") == "2" and session.value("%warpid") == "1"
        news = [e["body"]["breakpoint"] for e in session.client.events if e["event"] == "breakpoint"]
        wrong = next(b for b in news if b["id"] == told[1]["id"])
        assert not wrong["verified"] and wrong["reason"] == "failed" and "expression" in wrong["message"]
        assert session.over() == 0


@pytest.fixture(scope="module")
def steps() -> list[Any]:
    """What is seen at each stop of a line that each of 4 warps executes 4 times."""
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        found = [session.frames()[0]["id"] and seen(session)]
        for _ in range(15):
            session.go()
            found.append(seen(session))
    return found


@pytest.mark.parametrize(
    ("condition", "hits"),
    [("3", [3, 4, 5]), ("== 2", [2]), ("% 3", [3, 6]), ("< 3", [1, 2]), (">14", [15, 16])],
)
def test_hit_conditions_count_stops(condition: str, hits: list[int], steps: list[Any]) -> None:
    with Session() as session:
        session.breakpoints(PTX, {"line": ADD, "hitCondition": condition})
        session.run(LOOP).stopped()
        for n in hits:
            assert seen(session) == steps[n - 1], n
            if n != hits[-1]:
                session.go()


def test_wrong_hit_conditions_are_told() -> None:
    with Session() as session:
        (told,) = session.breakpoints(PTX, {"line": ADD, "hitCondition": "often"})
        session.run(LOOP, stopOnEntry=True).stopped()
        (told,) = session.breakpoints(PTX, {"line": ADD, "hitCondition": "often"})
        assert not told["verified"] and "a number is needed" in told["message"]


def test_log_points_say_values_and_go_on() -> None:
    with Session() as session:
        session.breakpoints(PTX, {"line": ADD, "logMessage": "k = {%r5}, warp {%warpid}, {nothing}", "condition": "tid.x == 0"})
        session.run(LOOP)
        assert session.ended() == 0
        said = [e["body"] for e in session.client.events if e["event"] == "output" and e["body"]["category"] == "console"]
        said = [b for b in said if b["output"].startswith("k = ")]
        assert [b["output"].split(",")[0] for b in said] == [f"k = {k}" for _ in range(2) for k in range(4)]
        assert all(b["line"] == ADD and b["source"]["path"] == str(PTX) for b in said)
        assert all("<there is no register nothing here>" in b["output"] for b in said)


def test_kernels_and_instructions_are_places() -> None:
    with Session() as session:
        wanted = [{"name": "loop"}, {"name": "other"}]
        told = session.client("setFunctionBreakpoints", breakpoints=wanted)["breakpoints"]
        stop = session.run(LOOP).stopped()
        assert stop["reason"] == "function breakpoint" and stop["hitBreakpointIds"] == [told[0]["id"]]
        session.client("setFunctionBreakpoints", breakpoints=[])
        (at,) = session.breakpoints(PTX, STORE)
        reference = at["instructionReference"]
        session.breakpoints(PTX)
        place = [{"instructionReference": reference, "offset": -16}, {"instructionReference": reference, "offset": 3}]
        told = session.client("setInstructionBreakpoints", breakpoints=place)["breakpoints"]
        assert told[0]["verified"] and not told[1]["verified"] and "bytes apart" in told[1]["message"]
        assert session.go()["reason"] == "instruction breakpoint" and session.line() == STORE - 1
        rows = session.client("disassemble", memoryReference=reference, instructionOffset=-1, instructionCount=5)["instructions"]
        assert [r["instruction"] for r in rows][:3] == ["add.f32 %f6, %f2, %f5;", "st.global.f32 [%rd4], %f6;", "ret;"]
        assert [r.get("presentationHint") for r in rows] == [None, None, None, "invalid", "invalid"]


def test_a_store_to_an_element_stops_the_launch() -> None:
    with Session() as session:
        session.run(LOOP, stopOnEntry=True).stopped()
        x = next(v for name, v in session.scope("Arguments").items() if name.startswith("x"))
        element = session.inside(x, start=65, count=1)["[65]"]
        info = session.client("dataBreakpointInfo", name="[65]", variablesReference=x["variablesReference"])
        assert info["dataId"] == "x[65]" and info["accessTypes"] == ["write"] and element["value"] in info["description"]
        assert session.client("dataBreakpointInfo", name="%r1", frameId=session.frames()[0]["id"])["dataId"] is None
        (told,) = session.client("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])["breakpoints"]
        assert told["verified"]
        stop = session.go()
        assert stop["reason"] == "data breakpoint" and stop["hitBreakpointIds"] == [told["id"]] and "65.0 ->" in stop["text"]
        assert session.over() == 0


# faults, deadlocks, rules ----------------------------------------------------------------------------------------------------
def variant(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """The launch with another text of its kernel."""
    text = PTX.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / f"{name}.ptx").write_text(text)
    (folder / f"{name}.toml").write_text(LOOP.read_text().replace("loop.ptx", f"{name}.ptx"))
    return folder / f"{name}.toml"


def test_a_fault_is_an_exception_that_can_be_gone_back_from(tmp_path: Path) -> None:
    with Session() as session:
        stop = session.run(variant(tmp_path, "wild", ("add.u64 %rd4", "sub.u64 %rd4"))).stopped()
        assert stop["reason"] == "exception" and session.line() == line_of("ld.global")
        about = session.client("exceptionInfo", threadId=session.thread)
        assert about["breakMode"] == "always" and "out of bounds" in about["description"]
        assert session.value("%r4") == "1 (lane 1): lane", "the first lane that is outside"
        session.go("stepBack")
        assert session.line() == line_of("@%p1 bra DONE")
        session.go("next")
        assert session.go()["reason"] == "exception"
        assert session.over() != 0 and "out of bounds" in session.client.output("stderr")


def test_a_fault_that_nobody_wants_to_see_ends_the_program(tmp_path: Path) -> None:
    with Session() as session:
        session.client("setExceptionBreakpoints", filters=[])
        session.run(variant(tmp_path, "wild", ("add.u64 %rd4", "sub.u64 %rd4")))
        assert session.ended() != 0 and "out of bounds" in session.client.output("stderr")


def test_a_deadlock_is_an_exception_that_says_who_waits(tmp_path: Path) -> None:
    with Session() as session:
        file = variant(tmp_path, "stuck", ("bar.sync 0;", "setp.lt.u32 %p3, %r2, 32;\n    @%p3 bar.sync 0, 64;"))
        stop = session.run(file).stopped()
        assert stop["reason"] == "exception" and "no warp can go on" in stop["description"]
        waits = session.scope("Waits")
        assert any("warp 0" in name for name in waits)
        assert "32 of 64 threads" in session.scope("Barriers")["barrier 0"]["value"]
        assert session.client("exceptionInfo", threadId=session.thread)["exceptionId"] == "deadlock"


def test_a_broken_rule_stops_where_it_is_broken(tmp_path: Path) -> None:
    file = variant(tmp_path, "race", ("    bar.sync 0;\n", ""), ("xor.b32 %r9, %r7, 4", "xor.b32 %r9, %r7, 128"))
    with Session() as session:
        filters = {f["filter"] for f in session.capabilities["exceptionBreakpointFilters"]}
        assert {"faults", "deadlocks", "races", "mbarriers", "waits"} <= filters
        wanted = ["races", "faults", "race-write-write", "nonsense"]
        told = session.client("setExceptionBreakpoints", filters=wanted)["breakpoints"]
        assert [b["verified"] for b in told] == [True, True, True, False]
        stop = session.run(file).stopped()
        assert stop["reason"] == "exception" and "race-read-write" in stop["text"] and stop["hitBreakpointIds"] == [told[0]["id"]]
        assert session.client("exceptionInfo", threadId=session.thread)["description"] == stop["text"]


# what there is to see --------------------------------------------------------------------------------------------------------
def test_variables_are_shown_by_lane_and_in_pages() -> None:
    with Session() as session:
        session.breakpoints(PTX, BARRIER)
        session.run(LOOP).stopped()
        registers = session.scope("Registers")
        lanes = session.inside(registers["%f2"])
        assert lanes["lane 3"]["value"] == str(4.0 * 3 + 6) and registers["%f2"]["indexedVariables"] == 32
        page = session.inside(registers["%f2"], filter="indexed", start=30, count=5)
        assert list(page) == ["lane 30", "lane 31"], "a page ends where the variables do"
        assert session.inside(registers["%f2"], filter="named") == {}
        x = session.scope("Arguments")["x"]
        assert x["indexedVariables"] == 128 and session.inside(x, start=100, count=1)["[100]"]["value"] == "100.0"
        tile = session.scope("Shared memory")["tile"]
        words = session.inside(tile, start=0, count=2, format={"hex": True})
        assert [v["value"] for v in words.values()] == ["0x40c00000", "0x41200000"], "6.0 and 10.0"
        data = session.client("readMemory", memoryReference=tile["memoryReference"], offset=4, count=8)
        assert struct.unpack("<2f", base64.b64decode(data["data"])) == (10.0, 14.0) and not data.get("unreadableBytes")
        end = session.client("readMemory", memoryReference=tile["memoryReference"], offset=252, count=16)
        assert end["unreadableBytes"] == 12 and len(base64.b64decode(end["data"])) == 4
        assert "%tid.x" in session.scope("Thread")
        assert "runs" in next(iter(session.scope("Lanes").values()))["value"]
        stale = registers["%f2"]["variablesReference"]
        session.go("next")
        assert "earlier stop" in session.client.refused("variables", variablesReference=stale)


def test_expressions_are_evaluated() -> None:
    with Session() as session:
        session.breakpoints(PTX, STORE)
        session.run(LOOP).stopped()
        for text, value in {
            "x[3]": "3.0", "n": "128", "%laneid": "0 (lane 0): lane", "laneid": "0 (lane 0): lane", "lane * 2 + 1": "1 (lane 0)",
            "%r4 - tid.x - 64 * ctaid.x": "0", "%f6 - x[0] > 0": "True", "1 < 2": "True", "tile": "256 bytes from shared 0x400",
        }.items():  # fmt: skip
            assert session.value(text).startswith(value), text
        assert "no expression" in session.client.refused("evaluate", expression="what is it", frameId=session.frames()[0]["id"])
        found = session.client("completions", text="why x", column=6, frameId=session.frames()[0]["id"])["targets"]
        assert {"label": "x", "start": 4, "length": 1} in found


def test_commands_of_the_terminal_are_carried_out_in_the_console() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        assert "%f2" in session.value("info registers %f2", context="repl")
        assert "x[1]" in session.value("why x[1]", context="repl")
        assert session.value("%f1 + 1", context="repl").startswith("1.0 (lane 0)")
        assert "no expression" in session.client.refused("evaluate", expression="nonsense here", context="repl")
        line = session.line()
        session.value("stepi 2", context="repl")
        assert session.stopped()["reason"] == "step" and session.line() == line + 2
        session.value("reverse-stepi 2", context="repl")
        session.stopped()
        assert session.line() == line
        assert "buttons" in session.client.refused("evaluate", expression="quit", context="repl")
        found = session.client("completions", text="reverse-st", column=11)["targets"]
        assert {"label": "reverse-stepi", "start": 0, "length": 10} in found


def test_lines_are_gone_to_in_time() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        session.breakpoints(PTX)
        targets = session.client("gotoTargets", source={"path": str(PTX)}, line=STORE)["targets"]
        assert [t["line"] for t in targets] == [STORE, STORE] and "next" in targets[0]["label"]
        assert session.go("goto", targetId=targets[0]["id"])["reason"] == "goto" and session.line() == STORE
        back = session.client("gotoTargets", source={"path": str(PTX)}, line=ADD)["targets"][1]
        session.go("goto", targetId=back["id"])
        assert session.line() == ADD
        assert session.over() == 0


def test_requests_that_wait_can_be_cancelled() -> None:
    with Session() as session:
        session.breakpoints(PTX, ADD)
        session.run(LOOP).stopped()
        client = session.client
        numbers = [client.send("disassemble", memoryReference="0x10000000000", instructionCount=20000) for _ in range(3)]
        client("cancel", requestId=numbers[-1])
        told = [client.response(n) for n in numbers]
        assert told[0]["success"] and not told[-1]["success"] and told[-1]["message"] == "cancelled"


# programs ---------------------------------------------------------------------------------------------------------------------
TRITON = '''
import torch, triton, triton.language as tl

@triton.jit
def clipped(v):
    return tl.minimum(v, 500)

@triton.jit
def add(x, z, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    m = at < n
    v = tl.load(x + at, m)
    w = clipped(v) + 1
    tl.store(z + at, w, m)

x = torch.arange(1000, dtype=torch.int32, device="cuda")
z = torch.empty_like(x)
for _ in range(2):
    add[(8,)](x, z, 1000, 128)
print("sum", int(z.sum().item()))
'''


@pytest.mark.full
def test_a_triton_program_stops_in_python(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    program = tmp_path / "add.py"
    program.write_text(TRITON)
    store, clip = line_of("tl.store", program), line_of("tl.minimum", program)
    with Session() as session:
        session.breakpoints(program, {"line": store, "condition": "ctaid.x == 5"}, {"line": clip, "hitCondition": "== 2"})
        session.run(program, seed=1).stopped()
        top, caller, *_ = session.frames()
        assert (top["line"], caller["line"], caller["name"]) == (clip, line_of("w = clipped", program), "add")
        assert top["source"]["path"] == str(program)
        session.go()
        assert session.line() == store and session.value("ctaid.x") == "5"
        ptx = session.frames()[-1]["source"]
        text = session.client("source", sourceReference=ptx["sourceReference"], source=ptx)["content"]
        line = session.frames()[-1]["line"]
        assert "st.global" in "".join(text.split("\n")[line - 1 : line + 6])
        assert [b["verified"] for b in session.breakpoints(ptx, line)] == [True]
        session.breakpoints(ptx)
        session.breakpoints(program)
        assert session.over() == 0 and session.client.output() == f"sum {sum(min(n, 500) + 1 for n in range(1000))}\n"
        names = [e["body"]["module"]["name"] for e in session.client.events if e["event"] == "module"]
        assert names == ["add", "add"]


@compiled
def test_a_program_of_cuda_shows_the_calls_of_functions() -> None:
    program = HERE / "calls.cu"
    loop, call = line_of("r = r * 2", program), line_of("both(x[i]", program)
    with Session() as session:
        session.breakpoints(program, loop)
        session.run(program).stopped()
        frames = [f for f in session.frames() if "PTX" not in f["name"]]
        assert [(f["name"].partition(" [")[0], f["line"]) for f in frames[:3]] == [
            ("twice", loop), ("both", line_of("a = twice", program)), ("kernel", call)
        ]  # fmt: skip
        caller = session.scope("Registers", frames[2])
        assert caller and "not known" not in caller
        session.breakpoints(program)
        session.go("stepOut")
        assert [f["name"].partition(" [")[0] for f in session.frames() if "PTX" not in f["name"]][:2] == ["both", "kernel"]
        session.go("stepBack")
        assert session.over() == 0 and "h[5] = " in session.client.output()


def test_a_warp_specialised_pipeline_is_stepped_forth_and_back() -> None:
    ptx = places.ROOT / "tests" / "kernels" / "ptx" / "gemm_pipelines.ptx"
    product = next(n for n, line in enumerate(ptx.read_text().split("\n"), 1) if "wgmma.mma_async" in line)
    with Session() as session:
        session.breakpoints(ptx, product)
        session.run(places.ROOT / "examples" / "hopper_pipeline" / "launch.toml", kernel="gemm_tma").stopped()
        assert session.line() == product
        threads = session.client("threads")["threads"]
        assert len(threads) == 24 and len({t["id"] for t in threads}) == 24
        matrices = session.scope("Next instruction")
        assert {"A", "B", "D"} <= matrices.keys()
        row = session.inside(matrices["A"], start=5, count=1)
        assert len(session.inside(next(iter(row.values())))) == 16
        assert session.scope("In flight") and session.scope("Barriers")
        there = [pipeline(session)]
        for command in ("next", "stepIn", "next", "continue", "next"):
            session.go(command)
            there.append(pipeline(session))
        for command, before in zip(("stepBack", "reverseContinue"), (there[-2], there[0])):
            session.go(command)
            assert pipeline(session) == before
        for _ in range(3):
            session.go("next")
        assert pipeline(session) == there[3]
        session.breakpoints(ptx)
        assert session.over() == 0


def pipeline(session: Session) -> tuple[Any, ...]:
    """What a client sees of a pipeline."""
    names = ("Registers", "Barriers", "In flight", "Waits", "Lanes")
    scopes = {n: {v["name"]: v["value"] for v in session.scope(n).values()} for n in names}
    places = {t["name"]: [f["line"] for f in session.frames(t["id"])] for t in session.client("threads")["threads"]}
    return scopes, places
