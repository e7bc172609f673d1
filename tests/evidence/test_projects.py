"""Programs that call kernels of public projects (evidence/projects): what is listed, kept and said of them fits together."""

import math

import pytest

from evidence.judges import judges
from evidence.projects.kit import cases, error
from evidence.projects.table import BESIDE, EXPLAINED, JUDGED, PROJECTS


def test_each_project_has_programs_and_results() -> None:
    listed = [(case.project, case.name) for case in cases()]
    assert len(set(listed)) == len(listed) and {project for project, _ in listed} == set(PROJECTS)
    kept = judges.of_projects()
    assert sorted((name, case["case"]) for name, run in kept.items() for case in run["cases"]) == sorted(listed)
    assert {name: run["version"] for name, run in kept.items()} == {name: project.version for name, project in PROJECTS.items()}


def test_each_failure_and_finding_has_its_reason() -> None:
    kept = judges.of_projects()
    for name, run in kept.items():
        for case in run["cases"]:
            explained = [why for (project, start), why in EXPLAINED.items() if project == name and case["case"].startswith(start)]
            assert case["verdict"] == "pass" or len(explained) == 1, case
        assert name in BESIDE or set(run["beside"]["launches"]) == {"same"}, run["beside"]
    assert {(name, one["rule"], one["source"]) for name, run in kept.items() for one in run["findings"]} == set(JUDGED)


@pytest.mark.full
def test_differences() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.tensor([4.0, -2.0, math.inf, math.nan])
    assert error(whole, whole) == 0
    assert error(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0])) == 0.25  # over the largest that is expected
    assert error(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0])) == math.inf
    assert error(torch.tensor([1.0, math.inf]), torch.tensor([1.0, 2.0])) == math.inf
    assert error(torch.zeros(2), torch.zeros(3)) == math.inf
