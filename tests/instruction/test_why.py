"""One element of a product on several devices: the bits of `matmul`, the text, what is refused; products that are compared."""

import json
from pathlib import Path

import numpy as np
import pytest

import mmulator as mm
from mmulator.cli.app import run
from mmulator.cli.why import random_matrices
from mmulator.isa.matrix import matrix_forms
from mmulator.isa.targets import DEVICES
from mmulator.matrix.inspect.explanation.arithmetic import runs_on
from mmulator.matrix.instruction.instruction import Instruction
from mmulator.matrix.numerics.formats import container

FORMS = [f for f in matrix_forms() if f.atype and f.btype and f.dtype]
F16 = "mma m16n8k16 f16 f32"


@pytest.mark.parametrize("form", FORMS[::37], ids=str)
def test_the_bits_are_those_of_matmul(form: object) -> None:
    i = Instruction.parse(str(form))
    devices = [d for d in DEVICES if runs_on(i.form, d)]
    a, b, more = random_matrices(i.form, 3, 2 * i.form.k + 1 if not i.form.sparse else 2 * i.form.k)
    found = mm.why(i, a, b, None, 1, 2, devices=devices, **more)
    assert list(found.sums) == devices and sorted(d for g in found.groups for d in g) == sorted(devices)
    for device, e in found.sums.items():
        d = mm.matmul(a, b, instruction=i, device=device, **more)
        assert int(np.ascontiguousarray(d).view(container(i.form.dtype))[1, 2]) == e.bits, device
    assert all(device in str(found) for device in devices) and json.dumps(found.to_dict()) and "<table" in found._repr_html_()


def matrices() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((16, 64)).astype(np.float16), rng.standard_normal((64, 8)).astype(np.float16)


def test_devices_that_differ_are_told_apart() -> None:
    found = mm.compare(*matrices(), F16, ["sm_80", "H100", "sm_100"])
    assert found.why is not None and list(found.why.sums) == ["sm_80", "sm_90"]
    first = np.argwhere(found.results["sm_80"] != found.results["sm_90"])[0].tolist()
    assert [found.why.row, found.why.col] == first and found.why.sums["sm_80"].bits != found.why.sums["sm_90"].bits
    rows = found.to_dict()["devices"]
    wrong = int((found.results["sm_80"] != found.results["sm_90"]).sum())
    assert (
        rows[1]["differ"] == f"{wrong} of 128"
        and rows[0]["most ULP"] == "0"
        and "sums differ from that of the first" in str(found)
    )


def test_devices_that_agree() -> None:
    found = mm.compare(*matrices(), F16, ["sm_90", "sm_100"])
    assert found.why is None and "0 of 128" in str(found)


def test_the_distance_from_numpy_is_in_steps_of_the_type() -> None:
    a, b = matrices()
    found = mm.why(F16, a, b, None, 3, 5)
    near = np.float32((a[3].astype(np.float32) * b[:, 5].astype(np.float32)).sum(dtype=np.float32))
    assert found.numpy == int(near.view(np.uint32)) and list(found.sums) == ["sm_90"]
    assert str(abs(found.numpy - found.sums["sm_90"].bits)) in str(found).splitlines()[3].split()[-1]


@pytest.mark.parametrize(
    "more, said",
    [({"row": 16}, "row is 16: D has 16 x 8 elements"), ({"col": -1}, "col is -1"), ({"devices": []}, "devices is empty"),
     ({"devices": ["sm_12"]}, "sm_12"), ({"C": np.zeros((2, 2), np.float32)}, "C of shape")],
)  # fmt: skip
def test_what_is_refused(more: dict[str, object], said: str) -> None:
    with pytest.raises(mm.errors.MmulatorError, match=said):
        mm.why(F16, *matrices(), **more)  # type: ignore[arg-type]


def test_batches_and_other_instructions_are_refused() -> None:
    a, b = matrices()
    with pytest.raises(mm.errors.OperandError, match="are batches"):
        mm.why(F16, a[None], b)
    with pytest.raises(mm.errors.OperandError, match="multiplies no matrices"):
        mm.why("ldmatrix x4", a, b)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = matrices()
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    files = ["--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy")]
    assert run(["why", *F16.split(), "--element", "3,5", "--devices", "sm_80,H100", *files]) == 0
    assert capsys.readouterr().out == f"{mm.why(F16, a, b, None, 3, 5, devices=['sm_80', 'sm_90'])}\n"
    assert run(["why", *F16.split(), "--json", *files]) == 0
    assert json.loads(capsys.readouterr().out)["devices"]["sm_90"]["bits"] == mm.why(F16, a, b).sums["sm_90"].bits
    assert run(["why", *F16.split(), "--k", "16", "--seed", "4"]) == 0
    assert "k 15 " in capsys.readouterr().out


@pytest.mark.parametrize("words, code", [(["--element", "3"], 2), (["--a", "a.npy"], 2), (["--element", "99,0"], 1)])
def test_mistakes_on_the_command_line(words: list[str], code: int) -> None:
    assert run(["why", *F16.split(), *words]) == code
