"""`mmulator mcp`: a scripted client repairs planted faults from the server's answers alone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mmulator as mm
from mmulator.base.rules import RULES
from mmulator.base.rules.fixes import FIXES, fix_of
from tests.support import breaches

# A right program of tests/ub, and the statement that is taken out of it.
FAULTS = (
    ("races/transpose", "bar.sync 0;"), ("consan/lifetimes", "cp.async.wait_all;"), ("operands/copies", "cp.async.wait_group 0;"),
    ("races/reverse", "bar.sync 0;"), ("proxies/bulk_store", "cp.async.bulk.wait_group.read 0;"),
    ("proxies/bulk_store_last", "cp.async.bulk.commit_group;"), ("accumulators/chained", "fence.proxy.async;"),
    ("accumulators/chained", "wgmma.fence.sync.aligned;"), ("accumulators/chained", "wgmma.commit_group.sync.aligned;"),
    ("consan/products", "wgmma.wait_group.sync.aligned 1;"),
)  # fmt: skip
MOST = 4  # repairs of one fault


def test_every_fix_is_of_a_rule() -> None:
    assert FIXES.keys() <= RULES.keys()


def test_a_fix_says_where_and_what() -> None:
    place = {"line": 7, "text": "ld.global.nc.f32 f, [d];"}
    assert fix_of({"rule": "race-read-write", "place": place, "conflict": None}) == {"line": 7, "insert": "bar.sync 0;"}
    assert fix_of({"rule": "nc-load-of-written", "place": place}) == {"line": 7, "replace": "ld.global.f32 f, [d];"}
    other = {"rule": "proxy-fence-missing", "place": place, "conflict": {"place": {"line": 3}}}
    assert fix_of(other) == {"line": 4, "insert": "fence.proxy.async;"}
    assert fix_of({"rule": "livelock", "place": place}) is None and fix_of({"rule": "race-read-write", "place": None}) is None


def launch_file(file: Path, folder: Path) -> tuple[Path, str]:
    """A launch file of a program of tests/ub, with what the right program leaves as the reference, and its text."""
    text, said, chance = breaches.text(file), breaches.launch_of(file), np.random.default_rng(1)
    module = mm.Module.load(text, name="k.ptx")
    kernel = next(iter(module.values()))
    values = [breaches._argument(a, chance) for a in said["args"]]
    block = said["block"]
    lines = ['ptx = "k.ptx"', f"grid = {said['grid']}", f"block = {block}", f"shared = {said.get('shared', 0)}"]
    for n, (value, word) in enumerate(zip(values, said["args"])):
        lines += ["[[arg]]", f'name = "a{n}"']
        if isinstance(value, np.ndarray):
            np.save(folder / f"a{n}.npy", value)
            lines += [f'npy = "a{n}.npy"']
        else:
            lines += [f'type = "{word.split()[0]}"', f"value = {value}"]
    before = [v.tobytes() if isinstance(v, np.ndarray) else b"" for v in values]
    kernel.launch(said["grid"], block, values, said.get("shared", 0))
    changed = {f"a{n}": v for n, v in enumerate(values) if isinstance(v, np.ndarray) and v.tobytes() != before[n]}
    np.savez(folder / "want.npz", **changed)
    (folder / "launch.toml").write_text("\n".join([*lines, "[expect]", 'file = "want.npz"', 'compare = "bits"', ""]))
    return folder / "launch.toml", text


async def repaired(client: Any, launch: Path, kernel: Path) -> list[str]:
    """The rules that a client repaired by `fix`, until the verdict is right; it knows nothing of the kernel."""
    rules: list[str] = []
    for _ in range(MOST):
        answer = await client.call_tool("sanitize", {"launch": str(launch), "kernel": str(kernel)})
        found = json.loads(answer.content[0].text)
        if found["ok"]:
            return rules
        finding = next((f for f in found["findings"] if f["severity"] == "error" and f["fix"]), None)
        assert finding is not None, found
        fix, lines = finding["fix"], kernel.read_text().split("\n")
        at = fix["line"] - 1
        lines[at : at + ("replace" in fix)] = [fix.get("insert") or fix["replace"]]
        kernel.write_text("\n".join(lines))
        rules.append(finding["rule"])
    raise AssertionError(rules)


@pytest.mark.full
def test_a_client_without_a_model_repairs_what_was_planted(tmp_path: Path) -> None:
    from mcp import Client, StdioServerParameters

    async def all_of_them() -> list[list[str]]:
        done = []
        async with Client(StdioServerParameters(command="mmulator", args=["mcp"])) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"judge", "sanitize", "why", "explain"}
            for number, (name, statement) in enumerate(FAULTS):
                folder = tmp_path / str(number)
                folder.mkdir()
                launch, text = launch_file(breaches.ROOT / f"{name}.ptx", folder)
                assert statement in text, name
                (folder / "k.ptx").write_text(text.replace(statement, "", 1))
                done.append(await repaired(client, launch, folder / "k.ptx"))
        return done

    done = asyncio.run(all_of_them())
    assert len(done) == len(FAULTS) and all(done), done
