"""Directives between a function's parameters and its body: verdicts of ptxas 13.0, and what they say of clusters."""

from __future__ import annotations

import pytest

from mmulator.errors import MmulatorError
from mmulator.ptx.directives import Clusters, clusters
from mmulator.ptx.parser import parse_module
from mmulator.ptx.verify import verify
from mmulator.source import Source

# Targets and versions of the columns of the verdicts.
PLACES = (("sm_80", "9.0"), ("sm_90", "7.8"), ("sm_90", "9.0"))
VERDICTS = """
-++ .reqnctapercluster 2
-++ .reqnctapercluster 2, 1
-++ .reqnctapercluster 4, 4, 4
--- .reqnctapercluster 2, 2, 2, 2
-++ .reqnctapercluster 0
-++ .reqnctapercluster 1, 1, 1 .reqnctapercluster 1, 1, 1
-++ .explicitcluster
--- .explicitcluster 1
-++ .explicitcluster .reqnctapercluster 2
-++ .maxclusterrank 8
--- .maxclusterrank 8, 1
--- .maxclusterrank
--- .maxclusterrank 4 .reqnctapercluster 2
-++ .maxclusterrank 2 .explicitcluster
+++ .reqntid 128, 2, 2
+++ .maxntid 1025
--- .maxntid 128 .reqntid 128
+++ .maxnreg 64
--- .maxnreg 0
+++ .minnctapersm 2
--- .maxnctapersm 2
--- .blocksareclusters
--- .reqntid 32 .blocksareclusters
--+ .reqntid 32 .reqnctapercluster 2 .blocksareclusters
--- .maxntid 32 .reqnctapercluster 2 .blocksareclusters
--- .noreturn
--- .abi_preserve 4
--- .whatever 4
+++ .func f() .noreturn
--- .func (.param .b32 r) f() .noreturn
+-+ .func f() .abi_preserve 4 .abi_preserve_control 1
--- .func f() .maxnreg 64
--- .func f() .reqnctapercluster 2
"""


def _problem(text: str, target: str, version: str) -> str | None:
    head = text if text.startswith(".func") else f".visible .entry k(.param .u64 p) {text}"
    try:
        module = parse_module(Source("d.ptx", f".version {version}\n.target {target}\n.address_size 64\n{head} {{ ret; }}\n"))
        return next((e.message for e in verify(module)), None)
    except MmulatorError as error:
        return error.message


@pytest.mark.parametrize("line", VERDICTS.strip().splitlines())
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
