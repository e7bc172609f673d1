"""Matrix instructions through the whole machine against further hardware vectors: the folder that MMULATOR_GOLDEN names."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmulator.host.module import Module
from mmulator.isa.form import Form
from mmulator.isa.names.mnemonic import parse_mnemonic
from tests.support.matrix_kernels import load, registers, store

FOLDER = os.environ.get("MMULATOR_GOLDEN", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="MMULATOR_GOLDEN names no folder of hardware vectors")
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def cases(name: str) -> Iterator[Any]:
    if FOLDER:
        index = json.loads((Path(FOLDER) / f"{name}.json").read_text())
        for number, what in index.items():
            yield pytest.param(number, what, id=f"{number}-{what.get('instruction', what.get('mma', ''))}")


def arrays(name: str, number: str) -> dict[str, np.ndarray]:
    with np.load(Path(FOLDER) / f"{name}.npz") as stored:
        return {k.partition(".")[2]: stored[k] for k in stored.files if k.startswith(number + ".")}


def mma_kernel(form: Form, counts: dict[str, int], wide: bool, selector: int | None) -> str:
    kind = "b64" if wide else "b32"
    names = [*"abc", *("e" if selector is not None else "")]
    size = 8 if wide else 4
    body = [line for n in names for line in load(n, counts[n], size if n != "e" else 4)]
    operands = [registers(n, counts[n]) for n in ("d", "a", "b", "c")]
    if selector is not None:
        operands += ["%e0", str(selector)]
    body += [f"{form.mnemonic} {', '.join(operands)};", *store("d", counts["d"], size)]
    declared = " ".join(f".reg .{kind if n != 'e' else 'b32'} %{n}<{counts[n]}>;" for n in (*names, "d"))
    params = ", ".join(f".param .u64 {n}" for n in (*names, "d"))
    head = f"{declared} .reg .b64 %p; .reg .b32 %at, %t; mov.u32 %at, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.u32 %at, %at, 32, %t;"
    return f"{HEAD}.visible .entry k({params})\n{{\n{head}\n" + "\n".join(body) + "\nret;\n}\n"


@pytest.mark.parametrize(("number", "what"), [*cases("mma_dense")])
def test_mma(number: str, what: dict[str, Any]) -> None:
    check_mma("mma_dense", number, what, None)


@pytest.mark.parametrize(("number", "what"), [*cases("mma_sp")])
def test_sparse_mma(number: str, what: dict[str, Any]) -> None:
    check_mma("mma_sp", number, what, what.get("selector"))


def check_mma(name: str, number: str, what: dict[str, Any], selector: int | None) -> None:
    form = parse_mnemonic(what["instruction"])
    data = arrays(name, number)
    if selector is None and "selector" in data:
        selector = int(data["selector"])
    wide = form.atype.name == "f64"
    buffers = {n: np.ascontiguousarray(data[n]) for n in "abc"}
    if "e" in data:
        buffers["e"] = np.ascontiguousarray(data["e"]).reshape(*data["e"].shape[:2], 1)
    counts = {n: v.shape[-1] // (2 if wide and n != "e" else 1) for n, v in buffers.items()}
    counts["d"] = data["d"].shape[-1] // (2 if wide else 1)
    out = np.zeros_like(data["d"])
    text = mma_kernel(form, counts, wide, selector if "e" in data else None)
    Module.load(text)["k"].launch(len(out), 32, [*buffers.values(), out], device="sm_90", timeout=600)
    assert np.array_equal(out, data["d"]), f"{(out != data['d']).sum()} of {out.size} words differ"


@pytest.mark.parametrize(("number", "what"), [*cases("wmma")])
def test_wmma(number: str, what: dict[str, Any]) -> None:
    """Loads, mma and store of a warp for each test: the fragments and the memory that hardware gave."""
    data = arrays("wmma", number)
    wide = ".f64" in what["mma"]
    kind, size = ("b64", 8) if wide else ("b32", 4)
    counts = {n: data[n].shape[-1] * 4 // size for n in "abcd"}

    def at(name: str) -> list[str]:
        return [f"ld.param.u64 %p, [{name}];", f"mad.wide.u32 %p, %at, {data[name][0].nbytes}, %p;"]

    body: list[str] = []
    for n in "abc":
        body += [*at(n.upper()), f"{what[f'load_{n}']} {registers(n, counts[n])}, [%p];"]
    body.append(f"{what['mma']} {', '.join(registers(n, counts[n]) for n in 'dabc')};")
    body += [*at("D"), f"{what['store_d']} [%p], {registers('d', counts['d'])};"]
    for n in "abcd":
        body += [*at(n), f"mad.wide.u32 %p, %t, {size * counts[n]}, %p;"]
        body += [f"st.global.{kind} [%p+{size * i}], %{n}{i};" for i in range(counts[n])]
    declared = " ".join(f".reg .{kind} %{n}<{counts[n]}>;" for n in "abcd")
    params = ", ".join(f".param .u64 {n}" for n in "ABCDabcd")
    head = f"{declared} .reg .b64 %p; .reg .b32 %at, %t; mov.u32 %at, %ctaid.x; mov.u32 %t, %tid.x;"
    text = f"{HEAD}.visible .entry k({params})\n{{\n{head}\n" + "\n".join(body) + "\nret;\n}\n"
    inputs = [np.ascontiguousarray(data[n]) for n in "ABC"]
    outputs = [np.zeros_like(data[n]) for n in "Dabcd"]
    Module.load(text)["k"].launch(len(inputs[0]), 32, [*inputs, *outputs], device="sm_90", timeout=600)
    for n, out in zip("Dabcd", outputs):
        assert np.array_equal(out, data[n]), f"{n}: {(out != data[n]).sum()} of {out.size} words differ"


@pytest.mark.parametrize(("number", "what"), [*cases("wgmma")])
def test_wgmma(number: str, what: dict[str, Any]) -> None:
    form = parse_mnemonic(what["instruction"])
    data = arrays("wgmma", number)
    in_registers = what["a"] == "registers"
    nd = data["d"].shape[-1]
    body = load("c", nd)
    sparse = form.sparse
    if in_registers:
        body += load("a", 4)
    if sparse:
        body += load("e", 1)
    body += [
        "ld.param.u64 %p, [smem];", "mov.u32 %s, tile;", "shl.b32 %w, %t, 4;", "cvt.u64.u32 %q, %w;", "add.u64 %p, %p, %q;",
        "add.u32 %s, %s, %w;", "mov.u32 %w, 0;",
        "L: ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%p];", "st.shared.v4.b32 [%s], {%x0, %x1, %x2, %x3};",
        "add.u64 %p, %p, 2048;", "add.u32 %s, %s, 2048;", "add.u32 %w, %w, 1;", "setp.lt.u32 %go, %w, 24;", "@%go bra L;",
        "fence.proxy.async;", "bar.sync 0;", "mov.u32 %s, tile;", "shr.u32 %s, %s, 4;", "cvt.u64.u32 %q, %s;",
        f"mov.u64 %bd, {int(what['b'], 16)};", "add.u64 %bd, %bd, %q;",
    ]  # fmt: skip
    if not in_registers:
        body += [f"mov.u64 %ad, {int(what['a'], 16)};", "add.u64 %ad, %ad, %q;"]
    operands = [registers("c", nd), registers("a", 4) if in_registers else "%ad", "%bd"]
    if sparse:
        operands += ["%e0", str(what["selector"])]
    operands += ["%one", *map(str, what["immediates"] or [])]
    body += [
        "setp.eq.u32 %one, 0, 0;", "wgmma.fence.sync.aligned;", f"{form.mnemonic} {', '.join(operands)};",
        "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;",
        "ld.param.u64 %p, [d];", f"mad.wide.u32 %p, %at, {4 * nd}, %p;",
    ]  # fmt: skip
    body += [f"st.global.b32 [%p+{4 * i}], %c{i};" for i in range(nd)]
    head = (
        f".reg .b32 %c<{nd}>, %a<4>, %e<1>, %x<4>, %at, %t, %s, %w; .reg .b64 %p, %q, %ad, %bd; .reg .pred %go, %one;\n"
        ".shared .align 1024 .b8 tile[49152];\nmov.u32 %t, %tid.x; mov.u32 %at, %t;"
    )
    text = f"{HEAD}.visible .entry k(.param .u64 c, .param .u64 a, .param .u64 e, .param .u64 smem, .param .u64 d)\n"
    text += "{\n" + head + "\n" + "\n".join(body) + "\nret;\n}\n"
    out = np.zeros_like(data["d"])
    a = data["a"] if in_registers else np.zeros((128, 4), np.uint32)
    e = data["e"] if sparse else np.zeros(128, np.uint32)
    args = [np.ascontiguousarray(x).copy() for x in (data["c"], a, e, data["smem"])]
    Module.load(text)["k"].launch(1, 128, [*args, out], device="sm_90", seed=int(number), timeout=600)
    assert np.array_equal(out, data["d"]), f"{(out != data['d']).sum()} of {out.size} words differ"
