"""Launches of tests/kernels/manifest.json: arguments from their specification, outputs of an H200 to compare with."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import mmulator as mm
from mmulator.host.module import Module
from mmulator.host.report import Report
from mmulator.runtime.launch.values import Aggregate
from tests.support.inputs import DTYPE, argument_bytes, digest
from tests.support.places import KERNELS

FOLDER = KERNELS
# The H200's output is not what the PTX says, or depends on more than the PTX.
EXCEPT = {
    "f32_library_edges": "ptxas makes a selection of a branch, and with a neg.f32 in it flips the sign of one NaN (lgammaf)",
    "atomics": "cas at and behind index n races with a store of another thread",
}


@cache
def manifest() -> dict[str, Any]:
    return json.loads((FOLDER / "manifest.json").read_text())  # type: ignore[no-any-return]


@cache
def _outputs() -> Any:
    return np.load(FOLDER / "outputs.npz")


@cache
def _digests() -> dict[str, str]:
    return json.loads((FOLDER / "digests.json").read_text())  # type: ignore[no-any-return]


@cache
def module(ptx: str) -> Module:
    return Module.load(FOLDER / ptx)


def array(spec: list[Any]) -> np.ndarray:
    return argument_bytes(spec).copy().view(DTYPE[spec[1]]).reshape(spec[2])


def _struct(spec: dict[str, Any], buffers: list[np.ndarray]) -> Aggregate:
    data = bytearray.fromhex(spec["hex"]) if "hex" in spec else bytearray(spec["struct"])
    pointers = {}
    for offset, type_name, value in spec["fields"]:
        if isinstance(value, dict):
            pointers[offset] = buffers[value["buffer"]]
        else:
            raw = np.array([value]).astype(DTYPE[type_name]).tobytes()
            data[offset : offset + len(raw)] = raw
    return Aggregate(bytes(data), pointers)


def _tensor_map(spec: dict[str, Any], buffers: list[np.ndarray]) -> Any:
    how = {k: v for k, v in spec.items() if k not in ("tensormap", "box")}
    return mm.TensorMap.tiled(buffers[spec["tensormap"]], spec["box"], **how)


@dataclass
class Difference:
    """An output that is not what the H200 left. worst: the largest difference over the largest value (NaN: a digest is known)."""

    argument: str
    wrong: int
    size: int
    worst: float
    first: int

    def __str__(self) -> str:
        return f"{self.argument}: {self.wrong} of {self.size} differ, first at {self.first}, worst {self.worst:.3g}"


@dataclass
class Outcome:
    report: Report
    differences: list[Difference]


def arguments(entry: dict[str, Any]) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Arguments of a launch of the manifest, and its outputs: arrays by the number of the argument, those behind pointers bN."""
    buffers = [array(b) for b in entry.get("buffers", [])]
    args: list[Any] = []
    outputs: dict[str, np.ndarray] = {}
    for n, spec in enumerate(entry["args"]):
        if isinstance(spec, list):
            args.append(array(spec))
            if spec[0] in ("out", "inout"):
                outputs[f"{n}"] = args[-1]
        elif isinstance(spec, dict) and "struct" in spec:
            args.append(_struct(spec, buffers))
        elif isinstance(spec, dict) and "tensormap" in spec:
            args.append(_tensor_map(spec, buffers))
        elif isinstance(spec, dict):
            args.append(next(iter(spec.values())))
        else:
            args.append(spec)
    for n, (spec, buffer) in enumerate(zip(entry.get("buffers", []), buffers)):
        if spec[0] in ("out", "inout"):
            outputs[f"b{n}"] = buffer
    return args, outputs


def launch(name: str, **options: Any) -> Outcome:
    """Run a launch of the corpus and compare all its outputs, bit for bit."""
    entry = manifest()[name]
    kernel = module(entry["ptx"])[entry["entry"]]
    args, outputs = arguments(entry)
    args += [0] * (len(kernel.function.params) - len(args))
    options.setdefault("timeout", 600)
    report = kernel.launch(entry["grid"], entry["block"], args, entry["shared"], device="sm_90", **options)
    return Outcome(report, list(_differences(name, outputs)))


def _differences(name: str, outputs: dict[str, np.ndarray]) -> Iterator[Difference]:
    stored = _outputs()
    for argument, got in outputs.items():
        key = f"{name}|{argument}"
        if key in _digests() and digest(got) != _digests()[key]:
            yield Difference(key, got.size, got.size, float("nan"), 0)
        if key not in stored:
            continue  # a digest is all there is; or it differs from run to run on the H200 (the manifest's note says why)
        want = np.frombuffer(stored[key].tobytes(), got.dtype).reshape(got.shape)
        same = got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")
        if not same.all():
            with np.errstate(all="ignore"):
                g, w = got.astype(np.float64), want.astype(np.float64)
                worst = float(np.nanmax(np.abs(g - w)) / max(float(np.nanmax(np.abs(w))), 1e-300))
            yield Difference(key, int((~same).sum()), got.size, worst, int(np.argmin(same.reshape(-1))))
