"""`mmulator run --sanitize`: what is printed, exit codes, JSON, SARIF, seeds, rules, suppressions, certificates."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.base.rules import RULES, TOPICS
from mmulator.base.rules.choice import NOTES, chosen
from mmulator.cli.app import run
from tests.support.breaches import RULE, TWICE
from tests.support.ptx_text import kernel

TRAP = "trap;"
Run = Callable[..., tuple[int, str, str]]
# Every thread stores its warp to out[0]: the seed says which is the last.
LAST = """
  shr.u32 %r1, %r0, 5;
  st.global.b32 [%rd0], %r1;
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """mmulator run of a launch file: (exit code, output, errors). more: what the kernel does besides."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_it(*options: str, more: str = "", file: str = "", body: str = TWICE, top: str = "") -> tuple[int, str, str]:
        Path("k.ptx").write_text(kernel(f"{body}  {more}\n", top=top))
        launch = 'ptx = "k.ptx"\ngrid = 2\nblock = 128\n[[arg]]\nname = "out"\ntype = "u32"\nshape = [4]\nzeros = true\n'
        Path("k.toml").write_text(launch + file)
        code = run(["run", "k.toml", *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_it


def data_of(output: str) -> Any:
    return json.loads(output)


def test_findings_are_paragraphs_with_both_places(go: Run) -> None:
    code, out, _ = go("--sanitize")
    assert code == 3
    paragraph = out[out.index("k.ptx:") :].splitlines()
    assert paragraph[0].startswith("k.ptx:15: error: ")
    text = "\n".join(paragraph)
    for part in (
        f"[{RULE}]", "  mbarrier.init.shared.b64 [bar], 1;\n  ^^^^", "  by: block (0, 0, 0), thread (0, 0, 0); 2 times",
        "  against: mbarrier.init.shared.b64 at k.ptx:14, block (0, 0, 0)", "    mbarrier.init.shared.b64 [bar], 1;\n    ^^^^",
        "  rule: PTX ISA", "  hint: ",
    ):  # fmt: skip
        assert part in text, part
    assert paragraph[-1] == "1 finding (1 error), of 1 rule"
    assert max(map(len, paragraph)) <= 80


def test_lines_are_whole_where_nobody_says_how_wide(go: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    _, out, _ = go("--sanitize")
    assert any(line.startswith("k.ptx:15: error: ") and line.endswith(f"[{RULE}]") for line in out.splitlines())


def test_nothing_found_says_what_was_looked_for(go: Run) -> None:
    code, out, _ = go("--sanitize", "--rules", "mbarriers", body=LAST)
    assert code == 0
    assert out.splitlines()[-1].startswith("no findings: ") and "looked for, seed 0" in out.splitlines()[-1]


def test_without_it_nothing_is_said(go: Run) -> None:
    code, out, _ = go()
    assert code == 0 and "finding" not in out


def test_a_fault_is_told_first_and_the_exit_code_is_that_of_findings(go: Run) -> None:
    code, out, err = go("--sanitize", more=TRAP)
    assert code == 3 and "execution fault" in err and "trap executed" in err
    assert RULE not in err and f"[{RULE}]" in out and out.splitlines()[-1].startswith("1 finding (1 error)")
    code, out, err = go("--sanitize", body=TRAP)
    assert code == 1 and out.splitlines()[-1].startswith("no findings: ")


def test_json(go: Run) -> None:
    code, out, _ = go("--sanitize", "--json")
    data = data_of(out)
    assert code == 3 and not data["ok"] and "findings" not in data["report"]
    told = data["sanitizer"]
    assert (told["errors"], told["warnings"], told["seeds"]) == (1, 0, [0]) and RULE in told["rules"]
    (finding,) = told["findings"]
    assert (finding["rule"], finding["count"], finding["location"]) == (RULE, 2, "k.ptx:15")
    assert finding["place"] == {
        "file": "k.ptx", "line": 15, "column": 3, "text": "mbarrier.init.shared.b64 [bar], 1;", "source": None
    }  # fmt: skip
    assert finding["conflict"]["place"]["line"] == 14

    code, out, _ = go("--sanitize", "--json", more=TRAP)
    data = data_of(out)
    assert code == 3 and data["errors"][0]["message"].startswith("trap") and data["sanitizer"]["errors"] == 1


# rules, suppressions --------------------------------------------------------------------------------------------------
def test_rules_are_chosen() -> None:
    all_, mbarriers = chosen(""), {r.name for r in TOPICS["mbarriers"]}
    assert all_ == set(RULES) - NOTES and chosen("", strict=True) == set(RULES)
    assert chosen("mbarriers", strict=True) == mbarriers and RULE in mbarriers
    assert NOTES and chosen(",".join(NOTES)) == NOTES and not chosen(",".join(TOPICS)) & NOTES
    assert chosen("mbarrier-init-in-*") == chosen(f" {RULE} ") == {RULE} and chosen(f"-{RULE}") == all_ - {RULE}
    assert chosen("mbarriers,-mbarrier-*") == frozenset(n for n in mbarriers - NOTES if not n.startswith("mbarrier-"))
    assert chosen(f"-mbarriers,{RULE}") == (all_ - mbarriers) | {RULE}
    with pytest.raises(ValueError, match=r"no rule 'nonsense'; `mmulator explain rules` lists all$"):
        chosen("nonsense")


def test_what_is_not_chosen_is_not_found(go: Run) -> None:
    for rules in ("mbarriers", RULE, "mbarrier-init-*"):
        assert go("--rules", rules)[0] == 3
    code, out, err = go("--rules", f"mbarriers,-{RULE}")
    assert code == 0 or "nothing is left" in err
    assert RULE not in out


def test_a_rule_that_there_is_not(go: Run) -> None:
    code, out, err = go("--rules", "mbarrier-in-use")
    assert code == 2 and not out and f"did you mean {RULE}" in err


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (f'rule = "{RULE}"', 0), ('rule = "mbarriers"', 0), ('rule = "mbarrier-*"\nreason = "known"', 0),
        (f'rule = "{RULE}"\nline = 15', 0), (f'rule = "{RULE}"\nline = 14', 0), (f'rule = "{RULE}"\nline = 13', 3),
        (f'rule = "{RULE}"\nsource = "k.cu:3"', 3),
    ],
)  # fmt: skip
def test_suppressions(go: Run, table: str, code: int) -> None:
    found, out, _ = go("--sanitize", file=f"[[suppress]]\n{table}\n")
    assert found == code, out
    if code:
        assert "note: nothing was found for [[suppress]] rule = " in out and "suppressed" not in out.splitlines()[-1]
    else:
        assert "; 1 suppressed" in out.splitlines()[-1] and "note: nothing" not in out


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('rule = "mbarrier-in-use"', "there is no rule"), ("line = 3", "'rule' is missing"),
        (f'rule = "{RULE}"\nwhy = "x"', "unknown key 'why'"), (f'rule = "{RULE}"\nline = "3"', "whole number"),
    ],
)  # fmt: skip
def test_suppressions_that_mean_nothing(go: Run, table: str, message: str) -> None:
    code, _, err = go("--sanitize", file=f"[[suppress]]\n{table}\n")
    assert code == 1 and "k.toml: [[suppress]]" in err and message in err


def test_the_source_of_a_suppression(go: Run) -> None:
    body = TWICE.replace("mbarrier.init", ".loc 1 7 0\nmbarrier.init")
    for source, code in (("mm.cu:7", 0), ("mm.cu", 0), ("mm.cu:8", 3), ("m.cu", 3)):
        file = f'[[suppress]]\nrule = "{RULE}"\nsource = "{source}"\n'
        found, out, _ = go("--sanitize", file=file, body=body, top='.file 1 "/x/mm.cu"\n')
        assert found == code, out


# seeds, certificates --------------------------------------------------------------------------------------------------
def test_seeds_are_a_union_and_the_first_decides_the_arrays(go: Run) -> None:
    # warp 0's turn or not: only where the last store of the seed is warp 3's does the second barrier come
    code, out, _ = go("--sanitize", "--seeds", "6", "--json", "--print", "out", "--rules", "mbarriers", more=LAST)
    data = data_of(out)
    (finding,) = data["sanitizer"]["findings"]
    assert code == 3 and data["sanitizer"]["seeds"] == [*range(6)] == finding["seeds"]
    assert (finding["seed"], finding["count"]) == (0, 12)
    _, alone, _ = go("--json", "--print", "out", more=LAST)
    assert data["arrays"] == data_of(alone)["arrays"]
    _, out, _ = go("--sanitize", "--seeds", "6", "--rules", "mbarriers")
    assert "  seeds: found under all 6" in out


def test_a_seed_that_changes_the_result_makes_notes_errors(go: Run) -> None:
    # each block leaves a number, and notes what the other has left by now
    body = """
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra done;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd1, %rd0;
  st.global.u32 [%rd1], 5;
  xor.b32 %r1, %r1, 1;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd2, %rd0;
  ld.volatile.global.u32 %r2, [%rd2];
  st.global.u32 [%rd1+8], %r2;
done:
"""
    code, out, _ = go("--sanitize", body=body)
    assert code == 0 and "race-half-strong" in out
    code, out, _ = go("--sanitize", "--seeds", "6", body=body)
    assert code == 3 and "--strict" not in out
    said = " ".join(out.split())
    assert "error: ld.volatile.global.u32 reads" in said and re.search(r"and seed \d leaves another result: out\[\d\] is", said)
    code, out, _ = go("--sanitize", "--seeds", "6", "--rules", "mbarriers", body=body)
    assert code == 0
    code, out, _ = go("--sanitize", "--seeds", "6", body=body.replace("%r2;", "7;"))
    assert code == 0


def test_a_finding_of_some_seeds_says_of_which(go: Run) -> None:
    # who comes last makes the mbarrier twice, if that is warp 2
    some = """
  .shared .align 8 .b64 bar;
  .shared .b32 turn;
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 31;
  setp.ne.u32 %p0, %r1, 0;
  @%p0 bra done;
  atom.shared.add.u32 %r2, [turn], 1;
  shr.u32 %r3, %r0, 5;
  setp.ne.u32 %p1, %r2, 3;
  setp.ne.or.u32 %p1, %r3, 2, %p1;
  @%p1 bra done;
  mbarrier.init.shared.b64 [bar], 1;
  mbarrier.init.shared.b64 [bar], 1;
done:
"""
    code, out, _ = go("--sanitize", "--seeds", "12", "--json", "--rules", "mbarriers", body=some)
    (finding,) = data_of(out)["sanitizer"]["findings"]
    seeds = finding["seeds"]
    assert code == 3 and 0 < len(seeds) < 12 and finding["seed"] == seeds[0]
    _, out, _ = go("--sanitize", "--seeds", "12", "--rules", "mbarriers", body=some)
    assert f"  seeds: found under {len(seeds)} of 12, first {seeds[0]}" in out


def test_a_counterexample_is_run_again_by_its_options(go: Run) -> None:
    code, out, _ = go("--certify", "--rules", "races", more=LAST)
    assert code == 3 and "certificate: counterexample, seed " in " ".join(out.split())
    (again,) = (line for line in out.splitlines() if line.startswith("again: "))
    code, out, _ = go("--certify", "--rules", "races", *again.removeprefix("again: ").split(), more=LAST)
    assert code == 3 and "certificate: counterexample" in out


def test_a_certificate_is_in_the_last_lines_and_in_json(go: Run) -> None:
    body = "red.global.add.u32 [%rd0], 1;\n"
    code, out, _ = go("--certify", body=body)
    told = "certificate: certified: no race, no deadlock and the same bytes in every schedule"
    assert code == 0 and told in " ".join(out.split())
    code, out, _ = go("--certify", "--json", body=body)
    assert code == 0 and data_of(out)["report"]["certificate"]["verdict"] == "certified"


def test_what_a_launch_needs_is_told_by_line(go: Run) -> None:
    body = "red.global.add.u32 [%rd0], 1;\n bar.sync 0;\n"
    code, out, _ = go("--certify=needed", body=body)
    assert code == 0 and "0 needed, 1 not needed while the others stay" in " ".join(out.split())
    assert "bar.sync 0; not needed" in out
    code, out, _ = go("--certify=needed", "--json", body=body)
    (row,) = data_of(out)["report"]["certificate"]["needed"]
    assert code == 0 and (row["verdict"], row["line"], row["instruction"]) == ("not needed", row["lines"][0], "bar.sync 0;")
    code, _, error = go("--certify=all", body=body)
    assert code == 2 and "needed for what it needs" in error


def test_the_inputs_of_each_seed_are_fresh(go: Run) -> None:
    count = "ld.global.u32 %r5, [%rd0+8];\n add.u32 %r5, %r5, 1;\n st.global.u32 [%rd0+8], %r5;\n"
    _, out, _ = go("--sanitize", "--seeds", "3", "--json", "--print", "out", "--rules", "mbarriers", more=count)
    _, alone, _ = go("--json", "--print", "out", more=count)
    assert data_of(out)["arrays"] == data_of(alone)["arrays"]


# SARIF ----------------------------------------------------------------------------------------------------------------
_LOG = {"$schema": str, "version": str, "runs": list}
_RUN = {"tool": dict, "columnKind": str, "artifacts": list, "results": list}
_DRIVER = {"name": str, "version": str, "semanticVersion": str, "rules": list}
_RULE = {"id": str, "name": str, "shortDescription": dict, "fullDescription": dict, "help": dict, "defaultConfiguration": dict,
         "properties": dict}  # fmt: skip
_RESULT = {"ruleId": str, "ruleIndex": int, "kind": str, "level": str, "message": dict, "locations": list,
           "relatedLocations": list, "occurrenceCount": int, "partialFingerprints": dict, "properties": dict}  # fmt: skip
_REGION = ("startLine", "startColumn", "endLine", "endColumn", "snippet")


def check_shape(log: dict[str, Any]) -> dict[str, Any]:
    """What SARIF 2.1.0 demands of what we write: names, types, references within the log, text where there is a message."""

    def shape(data: Any, wanted: dict[str, type], optional: tuple[str, ...] = ()) -> None:
        assert set(wanted) <= set(data) <= {*wanted, *optional}, set(data) ^ set(wanted)
        for name, kind in wanted.items():
            assert isinstance(data[name], kind), name

    def location(data: dict[str, Any]) -> None:
        assert set(data) <= {"physicalLocation", "message", "id"}
        physical = data["physicalLocation"]
        assert set(physical) == {"artifactLocation", "region"}
        artifact, region = physical["artifactLocation"], physical["region"]
        assert one["artifacts"][artifact["index"]]["location"]["uri"] == artifact["uri"]
        assert not artifact["uri"].startswith("/") and " " not in artifact["uri"] and "<" not in artifact["uri"]
        assert set(region) <= set(_REGION) and region["startLine"] >= 1 and region.get("startColumn", 1) >= 1
        if "endLine" in region:
            assert (region["endLine"], region["endColumn"]) > (region["startLine"], region["startColumn"])

    shape(log, _LOG)
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    (one,) = log["runs"]
    shape(one, _RUN)
    driver = one["tool"]["driver"]
    shape(driver, _DRIVER)
    assert len({r["id"] for r in driver["rules"]}) == len(driver["rules"])
    for rule in driver["rules"]:
        shape(rule, _RULE)
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
        assert all(rule[n]["text"].strip() for n in ("shortDescription", "fullDescription", "help")) and rule["help"]["markdown"]
    for artifact in one["artifacts"]:
        shape(artifact, {"location": dict, "sourceLanguage": str})
    for result in one["results"]:
        shape(result, _RESULT, ("suppressions", "baselineState"))
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"] and result["kind"] == "fail"
        assert result["level"] in ("error", "warning") and result["occurrenceCount"] > 0
        assert result["message"]["text"].endswith(".")
        assert len(result["locations"]) == 1
        for place in (*result["locations"], *result["relatedLocations"]):
            location(place)
        assert [p["id"] for p in result["relatedLocations"]] == [*range(len(result["relatedLocations"]))]
        assert all(p["message"]["text"] for p in result["relatedLocations"])
    prints = [str(r["partialFingerprints"]) for r in one["results"]]
    assert len(set(prints)) == len(prints)
    return one


def test_sarif(go: Run) -> None:
    code, out, _ = go("--sarif", "-")
    assert code == 3
    one = check_shape(data_of(out))
    (result,) = one["results"]
    assert (result["ruleId"], result["occurrenceCount"]) == (RULE, 2)
    assert [a["location"]["uri"] for a in one["artifacts"]] == ["k.ptx"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (15, 3)
    assert region["snippet"]["text"] == "mbarrier.init.shared.b64 [bar], 1;"
    assert result["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 14
    before = result["partialFingerprints"]
    _, out, _ = go("--sarif", "-", body="\n\n// three lines more\n" + TWICE)
    (moved,) = check_shape(data_of(out))["results"]
    assert moved["partialFingerprints"] == before and moved["locations"][0]["physicalLocation"]["region"]["startLine"] == 18


def test_sarif_names_the_program_and_what_is_suppressed(go: Run, tmp_path: Path) -> None:
    Path("mm.cu").write_text("\n" * 6 + "  init(bar);\n")
    body = TWICE.replace("mbarrier.init", ".loc 1 7 3\nmbarrier.init")
    _, out, _ = go("--sarif", "out.sarif", body=body, top=f'.file 1 "{tmp_path / "mm.cu"}"\n')
    assert "[mbarrier-init-in-use]" in out
    one = check_shape(data_of(Path("out.sarif").read_text()))
    assert [a["location"]["uri"] for a in one["artifacts"]] == ["mm.cu", "k.ptx"]
    (result,) = one["results"]
    related = result["relatedLocations"]
    assert [r["message"]["text"].partition(":")[0] for r in related] == ["compiled to", "against", "against"]
    region = {"startLine": 7, "startColumn": 3, "snippet": {"text": "init(bar);"}}
    assert result["locations"][0]["physicalLocation"]["region"] == related[1]["physicalLocation"]["region"] == region

    code, out, _ = go("--sarif", "-", file=f'[[suppress]]\nrule = "{RULE}"\nreason = "as is"\n')
    (result,) = check_shape(data_of(out))["results"]
    assert code == 0 and result["suppressions"] == [{"kind": "external", "justification": "as is"}]
    _, out, _ = go("--sarif", "-", "--rules", "mbarriers", body=LAST)
    assert check_shape(data_of(out))["results"] == []


def test_a_baseline_leaves_what_is_new(go: Run) -> None:
    again = "  mbarrier.inval.shared.b64 [bar];\n  ld.shared.b64 %rd1, [bar];\n  mbarrier.arrive.shared.b64 %rd1, [bar];\n"
    assert go("--sarif", "old.sarif")[0] == 3
    code, out, _ = go("--baseline", "old.sarif", body="\n// more\n" + TWICE)
    assert code == 0 and out.splitlines()[-1] == "nothing new; 1 known by the baseline" and "error" not in out

    code, out, _ = go("--baseline", "old.sarif", "--sarif", "new.sarif", body=TWICE.replace("done:", again + "done:"))
    assert code == 3 and "[mbarrier-use-after-inval]" in out and f"[{RULE}]" not in out
    assert out.splitlines()[-1] == "1 finding (1 error), of 1 rule; 1 known by the baseline"
    one = check_shape(data_of(Path("new.sarif").read_text()))
    assert {r["ruleId"]: r["baselineState"] for r in one["results"]} == {RULE: "unchanged", "mbarrier-use-after-inval": "new"}

    twice = TWICE.replace("done:", "  mbarrier.init.shared.b64 [bar], 1;\ndone:")  # the same again: one is known, one is not
    code, out, _ = go("--baseline", "old.sarif", "--json", body=twice)
    data = data_of(out)["sanitizer"]
    assert code == 3 and (data["known"], [f["group"] for f in data["findings"]]) == (1, [0])

    code, out, _ = go("--baseline", "new.sarif", "--sarif", "-", body="")
    assert code == 0 and [r["baselineState"] for r in check_shape(data_of(out))["results"]] == ["absent", "absent"]
    Path("gone.sarif").write_text(out)
    assert go("--baseline", "gone.sarif")[0] == 3  # what is gone is not known
    for name, text in (("no.sarif", None), ("x.sarif", "{}"), ("y.sarif", "["), ("z.sarif", '{"runs": [{"results": [{}]}]}')):
        if text is not None:
            Path(name).write_text(text)
        code, out, err = go("--baseline", name)
        assert code == 1 and not out and (f"{name} is no baseline" if text else "No such file") in err


@pytest.mark.parametrize(("file", "why"), [("nowhere/x.sarif", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(go: Run, file: str, why: str) -> None:
    code, out, err = go("--sarif", file)
    assert (code, out) == (1, "") and f"cannot write {file}: {why}" in err and "running" not in err
    assert run(["check", "k.ptx", "--sarif", file]) == 1


def test_watching_and_sanitizing_go_together(go: Run) -> None:
    code, out, _ = go("--sanitize", "--watch", "out[0]", "--json", body=TWICE + LAST)
    data = data_of(out)
    assert code == 3 and data["sanitizer"]["findings"] and data["report"]["stores"]


def test_options_that_do_not_go_together(go: Run) -> None:
    for options in (["--sarif", "-", "--json"], ["--sanitize", "--compare-gpu"]):
        assert go(*options)[0] == 2
    code, _, err = go("--sarif", "no/such/folder.sarif")
    assert code == 1 and "cannot write" in err


def test_what_memory_is_read_by_numpy_stays_the_same(go: Run) -> None:
    """--save has the first seed's arrays."""
    go("--sanitize", "--seeds", "4", "--save", "c.npz", "--rules", "mbarriers", more=LAST)
    with np.load("c.npz") as saved:
        first = saved["out"].copy()
    go("--save", "c.npz", more=LAST)
    with np.load("c.npz") as saved:
        assert (saved["out"] == first).all()
