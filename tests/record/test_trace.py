"""Traces of launches: the format of Chrome's trace events, and what they say of kernels that wait for each other."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.errors import ExecutionFault
from mmulator.host.jobs.job import load_job, run_job
from mmulator.observation.record.trace import Tracks
from tests.record.test_profile import HEAD, WAITS
from tests.support.places import ROOT

Event = dict[str, Any]


def checked(file: Path) -> list[Event]:
    """The events of a file, if it is a trace: slices of a track nest, asynchronous ones and flows have both ends."""
    data = json.loads(file.read_text())
    events: list[Event] = data["traceEvents"]
    assert data["displayTimeUnit"] == "ns" and "PTX instructions" in data["otherData"]["time"]
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    named, processes = set(), set()
    for e in events:
        assert e["ph"] in "MXbesf" and isinstance(e["pid"], int) and isinstance(e["name"], str)
        if e["ph"] == "M":
            (named if e["name"] == "thread_name" else processes).add((e["pid"], e.get("tid")))
            continue
        assert e["ts"] >= 0 and isinstance(e["tid"], int)
        if e["ph"] == "X":
            assert e["dur"] > 0
            tracks[e["pid"], e["tid"]].append(e)
    assert {*tracks} <= named and {pid for pid, _ in tracks} == {pid for pid, _ in processes}
    for track in tracks.values():
        open_until: list[int] = []
        for e in sorted(track, key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"]:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1], e
            open_until.append(e["ts"] + e["dur"])
    begun: dict[Any, Event] = {}
    for e in events:
        if e["ph"] == "b":
            assert (e["cat"], e["id"]) not in begun
            begun[e["cat"], e["id"]] = e
        elif e["ph"] == "e":
            first = begun[e["cat"], e["id"]]
            assert first["ts"] <= e["ts"] and first["pid"] == e["pid"] and first["name"] == e["name"] and not first.get("over")
            first["over"] = True
    assert all(e.pop("over") for e in begun.values())
    flows: dict[Any, list[Event]] = defaultdict(list)
    for e in events:
        if e["ph"] in "sf":
            flows[e["id"]].append(e)
            around = [s for s in tracks[e["pid"], e["tid"]] if s["ts"] <= e["ts"] <= s["ts"] + s["dur"]]
            assert around, e
    assert all([e["ph"] for e in pair] == ["s", "f"] and pair[0]["ts"] <= pair[1]["ts"] for pair in flows.values())
    return events


def example(name: str, file: Path, **options: Any) -> list[Event]:
    run_job(load_job(ROOT / "examples" / name / "launch.toml"), trace=str(file), **options)
    return checked(file)


def names(events: list[Event], phase: str) -> Counter[str]:
    return Counter(e["name"] for e in events if e["ph"] == phase)


def test_a_gemm_of_triton(tmp_path: Path) -> None:
    events = example("hopper_gemm", tmp_path / "t.json")
    assert names(events, "b").keys() == {"cp.async group", "wgmma group"}
    assert len({e["pid"] for e in events}) == 16 and names(events, "X")["wait for barrier 0"]
    assert json.dumps(events) == json.dumps(example("hopper_gemm", tmp_path / "u.json", threads=2))


@pytest.mark.parametrize("seed", [0, 3])
def test_a_pipeline_whose_warps_have_tasks_of_their_own(tmp_path: Path, seed: int) -> None:
    job = load_job(ROOT / "examples" / "hopper_pipeline" / "launch.toml")
    job.seed = seed
    run_job(job, trace=str(tmp_path / "t.json"))
    events = checked(tmp_path / "t.json")
    assert any(name.startswith("cp.async.bulk.tensor") for name in names(events, "b")) and names(events, "b")["wgmma group"]
    assert any("wait for" in name and "barrier 0" not in name for name in names(events, "X")), names(events, "X")
    assert names(events, "s") == names(events, "f") and names(events, "s")


def test_waits_are_named_by_their_mbarrier_and_line(tmp_path: Path) -> None:
    (kernel,) = mm.Module.load(HEAD + WAITS, name="waits.ptx").values()
    file = tmp_path / "t.json"
    kernel.launch(2, 70, [np.zeros(1, np.uint32)], trace=file)
    events = checked(file)
    waits = [e for e in events if e["ph"] == "X" and e["name"] == "wait for bar"]
    assert waits and all(e["args"]["line"] == "waits.ptx:15" for e in waits)
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["k, block (0, 0, 0)", "k, block (1, 0, 0)"]


def test_a_deadlock_leaves_a_trace(tmp_path: Path) -> None:
    text = WAITS.replace("mbarrier.arrive.shared.b64 state, [b];", "")
    (kernel,) = mm.Module.load(HEAD + text).values()
    with pytest.raises(ExecutionFault):
        kernel.launch(1, 70, [np.zeros(1, np.uint32)], trace=tmp_path / "t.json")
    assert "wait for bar" in names(checked(tmp_path / "t.json"), "X")


def test_large_grids_are_cut(tmp_path: Path) -> None:
    (kernel,) = mm.Module.load(HEAD + WAITS).values()
    report = kernel.launch(100, 70, [np.zeros(1, np.uint32)], trace=tmp_path / "t.json")
    assert "the trace has the first 64 of 100 blocks" in report.notes
    assert len({e["pid"] for e in checked(tmp_path / "t.json")}) == 64


def test_it_goes_with_all_others(tmp_path: Path) -> None:
    (kernel,) = mm.Module.load(HEAD + WAITS).values()
    alone, together = tmp_path / "a.json", tmp_path / "b.json"
    kernel.launch(1, 70, [np.zeros(1, np.uint32)], trace=alone)
    report = kernel.launch(1, 70, [np.zeros(1, np.uint32)], trace=together, profile=True, sanitize=True, watch=[(0, 0)])
    assert checked(together) == checked(alone) and report.profile is not None


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (kernel,) = mm.Module.load(HEAD + WAITS).values()
    with pytest.raises(mm.errors.LaunchError, match="cannot write"):
        kernel.launch(1, 70, [np.zeros(1, np.uint32)], trace=tmp_path / "no" / "t.json")


def test_tracks_nest() -> None:
    tracks = Tracks([(0, 10), (20, 30)])
    assert [tracks.place(*i) for i in ((5, 8), (6, 7), (10, 20), (25, 40), (25, 31), (26, 40))] == [0, 0, 0, 1, 1, 2]


def test_products_in_tensor_memory(tmp_path: Path) -> None:
    events = example("blackwell_gemm", tmp_path / "t.json")
    assert any(name.startswith("tcgen05.mma") for name in names(events, "b"))
