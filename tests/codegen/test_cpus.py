"""Code for other CPUs than the machine's own gives the same bits."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from mmulator.base.codegen import engine
from mmulator.base.codegen.cpus import LEVELS, chosen, features, level_of
from mmulator.errors import UnsupportedError

# digests of products by the twin, whose kernels differ most from CPU to CPU: chunks of each kind, and not full blocks
PRODUCTS = """
import hashlib
import sys
from mmulator.base.codegen import engine
own = engine._cpu()
if sys.argv[1:]:
    engine._cpu = lambda: (sys.argv[1], own[1])  # another's tuning, the same features
from mmulator.matrix.numerics import DotKey
from mmulator.matrix.twin.matrices import twin_matmul
from tests.support.numerics_cases import operands
found = hashlib.sha256()
for key, device in [
    (DotKey("wgmma", "f16", "f16", "f32", "f32", 16), "sm_90"),
    (DotKey("mma", "bf16", "bf16", "f32", "f32", 16), "sm_80"),
    (DotKey("wgmma", "e4m3", "e5m2", "f32", "f32", 32), "sm_90"),
    (DotKey("wgmma", "f16", "f16", "f16", "f16", 16), "sm_90"),
    (DotKey("mma", "s8", "s8", "s32", "s32", 32), "sm_80"),
    (DotKey("mma", "e5m2", "e5m2", "f16", "f16", 16), "sm_90"),
    (DotKey("mma", "f16", "f16", "f16", "f16", 4), "sm_80"),
    (DotKey("mma", "e2m1", "e2m1", "f32", "f32", 64, kind="mxf4nvf4", scale_vec="4X", stype="ue4m3"), "sm_120"),
    (DotKey("mma", "e2m1", "e2m1", "f32", "f32", 128, sparse=True, kind="mxf4", scale_vec="2X", stype="ue8m0"), "sm_120"),
]:
    for seed, names in enumerate([("normal", "normal", "normal"), ("special", "wide", "normal")]):
        for m, n in [(21, 88), (1, 8)]:
            (A, B, C), options = operands(key, m, n, 2 * key.k, seed, names)
            found.update(twin_matmul(key, device, A, B, C, threads=1, **options).tobytes())
print(engine.target_cpu()[0], found.hexdigest())
"""


@cache
def products_on(level: str, *tuning: str) -> tuple[str, str]:
    environment = {**os.environ, "MMULATOR_CPU": level}
    command = [sys.executable, "-c", PRODUCTS, *tuning]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    cpu, digest = done.stdout.split()
    return cpu, digest


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.full
def test_the_same_bits_on_every_level(level: str) -> None:
    own = engine._binding().get_host_cpu_features().flatten()
    if level not in [name for name in LEVELS if set(LEVELS[name]) <= {f[1:] for f in own.split(",") if f[:1] == "+"}]:
        pytest.skip(f"this machine is no {level}")
    name, digest = products_on("")
    assert name == engine._binding().get_host_cpu_name()
    assert len(digest) == 2 * hashlib.sha256().digest_size
    assert products_on(level) == (level, digest)


@pytest.mark.parametrize("tuning", ["sapphirerapids", "znver3"])
def test_the_same_bits_however_it_is_tuned(tuning: str) -> None:
    """LLVM orders code, and takes vectors of a width, by the name of the CPU."""
    assert products_on("", tuning) == (tuning, products_on("")[1])


def test_a_level_is_chosen_by_name() -> None:
    own = features("x86-64-v3")
    assert chosen("", "znver2", own) == ("znver2", own)
    assert chosen("x86-64-v3", "znver2", own + ",+adx") == ("x86-64-v3", own)
    with pytest.raises(UnsupportedError, match=r"znver2\) has no avx512bw, avx512cd, avx512dq, avx512f, avx512vl"):
        chosen("x86-64-v4", "znver2", own)
    with pytest.raises(UnsupportedError, match="MMULATOR_CPU is 'i386'"):
        chosen("i386", "znver2", own)
    assert level_of("znver2", own) == "x86-64-v3"


def test_no_instruction_is_blamed_for_the_name_of_a_level(tmp_path: Path) -> None:
    launch = Path(__file__).parents[2] / "examples" / "hopper_gemm" / "launch.toml"
    environment = {**os.environ, "MMULATOR_CPU": "x86-64", "MMULATOR_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "mmulator", "run", str(launch)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "unsupported: MMULATOR_CPU is 'x86-64', no level of CPUs"
    assert ".ptx" not in done.stderr
