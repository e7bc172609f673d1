"""Directives between a function's parameters and its body: verdicts of ptxas 13.0, and what they say of clusters."""

import pytest

from mmulator.base.source import Source
from mmulator.errors import MmulatorError
from mmulator.ptx.directives import Clusters, clusters
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify
from tests.support.places import DATA

# Targets and versions of the columns of the verdicts.
PLACES = (("sm_80", "9.0"), ("sm_90", "7.8"), ("sm_90", "9.0"))
VERDICTS = (DATA / "directives.txt").read_text().splitlines()


def _problem(text: str, target: str, version: str) -> str | None:
    head = text if text.startswith(".func") else f".visible .entry k(.param .u64 p) {text}"
    try:
        module = parse_module(Source("d.ptx", f".version {version}\n.target {target}\n.address_size 64\n{head} {{ ret; }}\n"))
        return next((e.message for e in verify(module)), None)
    except MmulatorError as error:
        return error.message


@pytest.mark.parametrize("line", VERDICTS)
def test_verdicts(line: str) -> None:
    verdict, _, text = line.partition(" ")
    for mark, (target, version) in zip(verdict, PLACES):
        problem = _problem(text, target, version)
        assert (problem is None) == (mark == "+"), f"{target} {version}: {problem}"


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("", Clusters(None, False, None, False)),
        (".reqnctapercluster 2", Clusters((2, 1, 1), False, None, False)),
        (".explicitcluster .reqnctapercluster 2, 4", Clusters((2, 4, 1), True, None, False)),
        (".maxclusterrank 8", Clusters(None, False, 8, False)),
        (".reqntid 32 .reqnctapercluster 2, 1, 3 .blocksareclusters", Clusters((2, 1, 3), False, None, True)),
    ],
)
def test_what_a_kernel_says_of_its_clusters(text: str, wanted: Clusters) -> None:
    module = parse_module(Source("d.ptx", f".version 9.0\n.target sm_90\n.visible .entry k() {text} {{ ret; }}\n"))
    assert clusters(module.entries[0]) == wanted
