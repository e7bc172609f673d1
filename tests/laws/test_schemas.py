"""JSON documents: real output of every command has the schema that it says, and no field comes or goes without a new version.

For a new field raise the minor number in base/schemas/__init__.py, for one that goes or changes the major one; then run
`python -m tools.pages.schemas`.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import mmulator as mm
from mmulator.base.schemas import VERSIONS, named
from mmulator.base.schemas.documents import schema_of
from mmulator.cli.app import run
from tests.support.places import PACKAGE, ROOT
from tests.support.ptx_text import stored
from tests.support.schemas import checked
from tools.pages.schemas import FILE, fields

SPARSE = "--for mma.sp m16n8k32 f16"
MATRIX = "wgmma m64n128 f16"
CUTE = "'Sw<3,4,3> o smem_ptr[16b](0x0) o ((8,16),(8,2)):((64,512),(1,8))'"
IM2COL = "--shape 2,6,6,32 --lower=-1,-1 --upper=-1,-1 --channels 32 --pixels 20"
GEMM = f"run {ROOT}/examples/handwritten/launch.toml"
LINES = f"""
run k.toml --sanitize --profile --why out[0] --watch out[0] --print out
run k.toml --sanitize --keep-going
{GEMM} --why C[3,5] --against sm_90
run nothing.toml
check k.ptx
check {ROOT}/examples/cuda/rms.ptx
why mma m16n8k16 f16 --devices A100,H100
why mma m16n8k32 mxf8f6f4 e4m3 --devices sm_120
judge k.toml
same k.toml k.ptx
reduce w.toml
list wgmma
list --devices
explain wgmma m64n128 bf16
explain mma m16n8k16 f16
explain swizzle
explain rules
explain race-read-write
layout mma m16n8k16 f16 a
layout mma.sp m16n8k32 f16 e
layout mma m16n8k16 f16 a --element 3,5
layout wgmma m64n256 bf16 d --cute
layout tcgen05 m32n64 f16 ws d --register 101,2
descriptor decode 0x4000004000010040
descriptor decode 0x4000004000010040 {MATRIX} --element 3,4 --address 0x4f0
descriptor check --type f16 --swizzle 64B --access ldmatrix --access k:16
descriptor check 1
descriptor from-cute {CUTE} {MATRIX}
descriptor decode 0x8100490 tcgen05 bf16 --operand idesc
descriptor encode tcgen05 m128n64 bf16 --operand idesc
tensormap encode --shape 64,60 --strides 128 --box 8,64 --swizzle 128B
tensormap encode {IM2COL}
tensormap check --shape 64,60 --strides 128 --box 8,64
tensormap draw --shape 64,60 --strides 128 --box 16,64 --swizzle 128B --at 56,0 --element 57,3 --byte 16
tensormap draw {IM2COL} --offsets 1,1
sparse check A.npy {SPARSE}
sparse prune A.npy {SPARSE} -o P.npy
sparse compress A.npy --prune {SPARSE} -o S.npz
sparse lanes S.npz {SPARSE}
sparse lanes {SPARSE}
sparse decode 0xe9c84eed {SPARSE}
schema
doctor
"""
CACHE = ("cache", "cache clear")
ELSEWHERE = {  # documents that other tests have a reason to make
    "debug": "debug/test_terminal.py", "explore": "explore/test_server.py", "explore-export": "explore/test_server.py",
    "conformance": "conformance/test_conformance.py", "mutate": "strictness/test_pytest_mutate.py",
    "compare-builds": "builds/test_builds.py",
    "library": "conformance/test_library.py",
    "same-configs": "doors/triton/test_configs.py",
}  # fmt: skip
PTX = stored("turn")
PROGRAM = """import numpy as np
from mmulator.host.driver import Region, current
out = np.zeros(64, np.uint32)
turn = current().load(open("k.ptx").read(), "k.ptx").function("turn")
current().launch(turn, 1, 64, out.ctypes.data.to_bytes(8, "little"), [Region(out.ctypes.data, 256, "out")])
"""
LAUNCH = 'ptx = "k.ptx"\ngrid = 1\nblock = 64\n[[arg]]\nname = "out"\ntype = "u32"\nshape = [64]\nzeros = true\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"k.ptx": PTX, "k.toml": LAUNCH, "p.py": PROGRAM}.items():
        Path(name).write_text(text)
    Path("w.toml").write_text(LAUNCH.replace("[64]", "[1]"))  # it stores beyond the end
    np.save("A.npy", np.random.default_rng(0).standard_normal((16, 64)).astype(np.float16))
    return tmp_path


def test_every_document_is_as_its_schema_says(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for line in (*LINES.strip().splitlines(), *CACHE):
        if line in CACHE:
            monkeypatch.setenv("MMULATOR_CACHE", str(folder / "cache"))
        words = shlex.split(line)
        run([*words, "--json"] if words[0] != "judge" else ["judge", "--json", *words[1:]])
        said = capsys.readouterr()
        assert said.out.startswith("{"), (line, said)
        name = checked(json.loads(said.out))
        assert name != "error" or "nothing" in line, (line, said.out)
        seen.add(name)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    environment = os.environ | {"PYTHONPATH": str(PACKAGE), "MMULATOR_REPORT": "r.jsonl"}
    words = ["exec", "--json", "--sanitize", "--profile-to", "p.json", "p.py"]
    done = subprocess.run([sys.executable, "-m", "mmulator", *words], capture_output=True, text=True, env=environment)
    seen.add(checked(json.loads(done.stdout)))
    seen |= {checked(json.loads(Path(name).read_text())) for name in ("p.json", "r.jsonl")}
    report = mm.Module.load(PTX)["turn"].launch(1, 64, [np.zeros(64, np.uint32)], sanitize=True, profile=True, why=(0, 5))
    assert report.findings and report.profile
    seen |= {checked(_plain(one)) for one in (report.as_dict(), report.profile.as_dict(), report.why[0].as_dict())}
    tenths = np.full((16, 16), np.float16(0.1))
    tenths[0, 0] = 4096
    seen.add(checked(_plain(mm.compare(tenths, tenths[:, :8], "mma m16n8k16 f16", ["A100", "H100"]).to_dict())))
    seen.add("findings")  # inside the documents of `run --sanitize`, with a version of its own
    assert seen | ELSEWHERE.keys() == VERSIONS.keys()
    for file in ELSEWHERE.values():
        assert "checked(" in (ROOT / "tests" / file).read_text()


def _plain(data: Any) -> Any:
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("name", VERSIONS)
def test_schemas_are_json_schemas(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == named(name)


def test_a_field_that_comes_or_goes_is_noticed() -> None:
    data = {"schema": named("cache-clear"), "ok": True, "folder": "a", "removed": 1, "bytes": 2}
    assert checked(data) == "cache-clear"
    broken: list[dict[str, Any]] = [
        {**data, "more": 1}, {k: v for k, v in data.items() if k != "bytes"}, {**data, "bytes": "2"},
        {**data, "schema": "mmulator.cache-clear/9.0"},
    ]  # fmt: skip
    for one in broken:
        with pytest.raises(AssertionError):
            checked(one)


def test_versions_say_what_changed() -> None:
    """The fields of each version are kept. What a version had, its followers with that major number have."""
    kept: dict[str, list[str]] = json.loads((ROOT / FILE).read_text())
    for name, (major, minor) in VERSIONS.items():
        now = set(fields(name))
        assert set(kept.get(named(name), [])) == now, f"{name}: raise its version, then python -m tools.pages.schemas"
        for earlier in range(minor):
            gone = set(kept[f"mmulator.{name}/{major}.{earlier}"]) - now
            assert not gone, f"{name}: {sorted(gone)} went, which needs a new major number"
