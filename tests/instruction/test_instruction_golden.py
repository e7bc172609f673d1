"""Instructions against hardware vectors, register by register (optional, folder MMULATOR_GOLDEN): no bit may differ."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator import Instruction

TARGET: dict[str, Any] = {"target": "sm_90a", "ptx": "8.7"}


def load(name: str) -> tuple[dict[str, Any], Any]:
    where = os.environ.get("MMULATOR_GOLDEN")
    path = Path(where or ".") / f"{name}.json"
    if not where or not path.exists():
        pytest.skip(f"{name}: MMULATOR_GOLDEN names no folder of hardware vectors")
    return json.loads(path.read_text()), np.load(path.with_suffix(".npz"))


def wide(i: Instruction, registers: Any) -> Any:
    """f64 registers come as two words."""
    is_f64 = i.form.atype.name == "f64"
    return np.ascontiguousarray(registers).view(np.uint64) if is_f64 else registers


@pytest.mark.parametrize("name", ["mma_dense", "mma_sp"])
def test_mma(name: str) -> None:
    cases, arrays = load(name)
    for number, case in cases.items():
        i = Instruction.parse(case["instruction"], **TARGET)
        operands = {k: wide(i, arrays[f"{number}.{k}"]) for k in "abc"}
        if i.form.sparse:
            operands |= {"e": arrays[f"{number}.e"], "f": case["selector"]}
        d = i.execute(device="sm_90", **operands)
        assert np.array_equal(d, wide(i, arrays[f"{number}.d"])), case


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_wgmma(sparse: bool) -> None:
    cases, arrays = load("wgmma")
    for number, case in cases.items():
        i = Instruction.parse(case["instruction"], **TARGET)
        if i.form.sparse != sparse:
            continue
        in_registers = case["a"] == "registers"
        a = {"a": arrays[f"{number}.a"]} if in_registers else {"a_desc": int(case["a"], 16)}
        names = ["imm_scale_a", "imm_scale_b", *([] if in_registers else ["imm_trans_a"]), "imm_trans_b"]
        meta = {"sp_meta": arrays[f"{number}.e"], "sp_sel": case["selector"]} if sparse else {}
        d = i.execute(
            device="sm_90",
            d=arrays[f"{number}.c"],
            b_desc=int(case["b"], 16),
            shared=arrays[f"{number}.smem"],
            scale_d=case["scale_d"],
            **a,
            **meta,
            **dict(zip(names, case["immediates"])),
        )
        assert np.array_equal(d, arrays[f"{number}.d"]), case


def test_wmma() -> None:
    """Loads, mma and store: matrices in memory give the fragments and the memory that hardware gave."""
    cases, arrays = load("wmma")
    for number, case in cases.items():
        i = Instruction.parse(case["mma"], **TARGET)
        fragments = {}
        for k in "abc":
            memory = np.ascontiguousarray(arrays[f"{number}.{k.upper()}"]).view(np.uint8)
            r = Instruction.parse(case[f"load_{k}"], **TARGET).execute(memory=memory, p=0)
            assert np.array_equal(r, wide(i, arrays[f"{number}.{k}"])), case
            fragments[k] = r
        d = i.execute(device="sm_90", **fragments)
        assert np.array_equal(d, wide(i, arrays[f"{number}.d"])), case
        out = np.zeros_like(np.ascontiguousarray(arrays[f"{number}.D"]).view(np.uint8))
        Instruction.parse(case["store_d"], **TARGET).execute(memory=out, p=0, r=d)
        assert np.array_equal(out.view(np.uint32), arrays[f"{number}.D"]), case
