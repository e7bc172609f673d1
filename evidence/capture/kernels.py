"""Rebuild the kernel corpus of tests/kernels, and record what a GPU computes with it.

    python -m evidence.capture.kernels build [NAME ...]     # no GPU: Triton, nvcc and Numba write ptx/ and manifest.json
    python -m evidence.capture.kernels run [--out FILE]     # on the GPU: every kernel three times, outputs.npz
    python -m evidence.capture.kernels digest --out FILE    # keep digests of what `run --out FILE` left, in digests.json
    python -m evidence.capture.kernels example FOLDER --out FOLDER/expected.npz     # on the GPU: one launch.toml

`tests/kernels/README.md` describes the formats.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import corpus
from tests.support.inputs import DTYPE, argument_bytes, digest

HOME = Path(__file__).resolve().parents[2] / "tests" / "kernels"
TRITON_TYPE = {
    "f16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "f64": "fp64",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
    "s8": "i8",
    "u8": "u8",
    "s16": "i16",
    "u16": "u16",
    "s32": "i32",
    "u32": "u32",
    "s64": "i64",
    "u64": "u64",
}


def parameters(ptx: str, entry: str) -> list[str]:
    """The parameter types of a kernel, structures as `b8[SIZE]`."""
    head = re.search(r"\.entry\s+" + re.escape(entry) + r"\s*\((.*?)\)", re.sub(r"/\*.*?\*/|//[^\n]*", "", ptx, flags=re.S), re.S)
    if head is None:
        raise SystemExit(f"no entry {entry}")
    out = []
    for line in filter(str.strip, head.group(1).split(",")):
        kind = re.search(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)", line)
        size = re.search(r"\[(\d+)\]", line)
        assert kind
        out.append(f"{kind.group(1)}[{size.group(1)}]" if size else kind.group(1))
    return out


def hide_paths(ptx: str) -> str:
    """Blank out this machine's folder in the debug sections, which spell it byte by byte."""
    ptx = re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^"/]*)"', r'\1"\2"', ptx)
    for folder in (str(HOME / "triton"), str(HOME / "cuda")):
        spelled = r"\s*".join(rf"\.b8 {c}\b[^\n]*\n" for c in folder.encode())
        ptx = re.sub(spelled, "".join(".b8 47\n" for _ in folder), ptx)
    return ptx


def load_cases(path: Path) -> list[dict[str, Any]]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: list[dict[str, Any]] = module.CASES
    return cases


def build_triton(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """PTX and launch facts of one Triton case, specialised as Triton's own launcher would."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.compilation.disable_line_info = not case.get("line_info", False)
    names = case["kernel"].arg_names
    free = [n for n in names if n not in case["constexpr"]]
    signature, constants, attributes = {}, dict(case["constexpr"]), {}
    for name, arg in zip(free, case["args"], strict=True):
        at = (names.index(name),)
        if isinstance(arg, list):
            signature[name] = "*" + TRITON_TYPE[arg[1]]
            attributes[at] = [["tt.divisibility", 16]]
        elif isinstance(arg, dict):
            signature[name] = "fp32"
        elif arg == 1:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if arg % 16 == 0:
                attributes[at] = [["tt.divisibility", 16]]
    for name, value in case["constexpr"].items():
        signature[name] = "constexpr"
        if name == "ACC":
            constants[name] = getattr(
                triton.language, {"fp16": "float16", "fp32": "float32", "fp64": "float64"}.get(value, value)
            )
    source = ASTSource(case["kernel"], signature={n: signature[n] for n in names}, constexprs=constants, attrs=attributes)
    made = triton.compile(
        source,
        target=GPUTarget("cuda", case["capability"], 32),
        options={"num_warps": case["warps"], "num_stages": case["stages"]},
    )
    meta = made.metadata
    args = [a for n, a in zip(free, case["args"], strict=True) if n not in constants]
    if meta.global_scratch_size:  # per block
        blocks = case["grid"][0] * case["grid"][1] * case["grid"][2]
        args.append(["scratch", "u8", [meta.global_scratch_size * blocks]])
    ptx = made.asm["ptx"]
    facts = {
        "entry": meta.name,
        "capability": case["capability"],
        "source": f"triton {triton.__version__}",
        "grid": case["grid"],
        "block": [32 * case["warps"], 1, 1],
        "shared": meta.shared,
        "args": args,
    }
    return ptx, facts


def build_numba(case: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """PTX and launch facts of a Numba case; an array is two null pointers, items, item size, data, shape, strides."""
    import numba
    from numba import cuda

    text, _ = cuda.compile_ptx(case["kernel"], case["signature"], cc=(9, 0), device=False)
    entry = re.search(r"\.entry\s+(\w+)", text)
    assert entry
    args: list[Any] = []
    for a in case["arrays"]:
        if isinstance(a, list):
            size = np.dtype(DTYPE[a[1]]).itemsize
            args += [0, 0, int(np.prod(a[2])), size, a, *a[2], *(int(np.prod(a[2][i + 1 :])) * size for i in range(len(a[2])))]
        else:
            args.append(a)
    return text, {
        "entry": entry.group(1),
        "capability": 90,
        "source": f"numba {numba.__version__}",
        "grid": case["grid"],
        "block": case["block"],
        "shared": 0,
        "args": args,
    }


def nvcc(source: Path, out: Path, *flags: str) -> None:
    """Compile a .cu."""
    subprocess.run(["nvcc", "-std=c++17", "--disable-warnings", *flags, source.name, "-o", out], check=True, cwd=source.parent)


def build_cuda(case: dict[str, Any], built: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The PTX file of a CUDA case, compiled once per source, and its launch facts."""
    source, flags = HOME / "cuda" / case["file"], case.get("flags", [])
    stem = "_".join(filter(None, (source.stem, case.get("variant"))))
    target = HOME / "ptx" / f"{stem}.ptx"
    if stem not in built:
        nvcc(source, target, "-ptx", f"-arch=compute_{case['arch']}", *flags)
        target.write_text(hide_paths(target.read_text()))
        built[stem] = {}
    facts = {"entry": case["entry"], "capability": int(case["arch"].rstrip("a")), "source": "nvcc 13.0", "args": case["args"]}
    facts |= {"grid": case["grid"], "block": case["block"], "shared": case.get("shared", 0)}
    return f"ptx/{target.name}", facts


def build(chosen: list[str]) -> None:
    manifest_path = HOME / "manifest.json"
    old = json.loads(manifest_path.read_text()) if manifest_path.exists() else {}
    manifest: dict[str, Any] = {}
    (HOME / "ptx").mkdir(exist_ok=True)
    built: dict[str, Any] = {}
    sources = [
        *sorted((HOME / "triton").glob("*.py")),
        HOME / "cuda" / "cases.py",
        HOME / "handwritten" / "cases.py",
        HOME / "numba" / "kernels.py",
    ]
    for path in sources:
        maker = {"triton": "triton", "numba": "numba"}.get(path.parent.name)
        if maker and importlib.util.find_spec(maker) is None:
            print(f"{path.name}: kept as it is, {maker} is not installed")
            manifest |= {k: v for k, v in old.items() if v["made_from"] == f"{path.parent.name}/{path.name}"}
            continue
        for case in load_cases(path):
            name = case["name"]
            manifest[name] = old.get(name)
            if chosen and not any(re.fullmatch(c, name) for c in chosen):
                continue
            try:
                if maker:
                    text, facts = build_triton(case) if maker == "triton" else build_numba(case)
                    target, origin = f"ptx/{name}.ptx", f"{maker}/{path.name}"
                    (HOME / target).write_text(hide_paths(text))
                elif path.parent.name == "handwritten":
                    target = origin = f"handwritten/{case['file']}"
                    text = (HOME / target).read_text()
                    facts = {
                        "entry": case["entry"],
                        "capability": 90,
                        "source": "by hand",
                        "grid": case["grid"],
                        "block": case["block"],
                        "shared": case.get("shared", 0),
                        "args": case["args"],
                    }
                else:
                    origin = f"cuda/{case['file']}"
                    target, facts = build_cuda(case, built)
                    text = (HOME / target).read_text()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {str(error)[-1500:]}")
                continue
            facts["params"] = parameters(text, facts["entry"])
            for arg in [*facts["args"], *case.get("buffers", [])]:
                if isinstance(arg, list) and len(arg) > 3 and "sha256" not in arg[3]:
                    arg[3] = {**arg[3], "sha256": digest(argument_bytes(arg))}
            extra = {k: case[k] for k in ("buffers", "note") if k in case}
            manifest[name] = {"ptx": target, "made_from": origin, **facts, **extra}
            print(name, len(facts["params"]), "parameters, shared", facts["shared"], flush=True)
    manifest = {k: v for k, v in manifest.items() if v}
    manifest_path.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in manifest.items()) + "\n}\n")
    print(len(manifest), "kernels,", sum(f.stat().st_size for f in (HOME / "ptx").iterdir()), "bytes of PTX")


def run_one(gpu: Any, case: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs of one launch, by argument index, as bytes; raises on any error of the driver."""
    args, outputs = corpus.arguments(case)
    gpu.run(HOME / case["ptx"], case["entry"], case["grid"], case["block"], args, case["shared"])
    return {key: made.reshape(-1).view(np.uint8) for key, made in outputs.items()}


def worker(names: list[str], out: Path) -> None:
    from evidence.capture.gpu import Gpu

    manifest = json.loads((HOME / "manifest.json").read_text())
    gpu = Gpu()
    for name in names:
        print("start", name, flush=True)
        runs = [run_one(gpu, manifest[name]) for _ in range(3)]
        steady = {i: all(np.array_equal(r[i], runs[0][i]) for r in runs) for i in runs[0]}
        np.savez(out / f"{name}.npz", **{str(i): v for i, v in runs[0].items()})
        print("done", name, json.dumps({str(i): s for i, s in steady.items() if not s}), flush=True)


def run(out: Path, chosen: list[str]) -> None:
    """Run every kernel in worker processes: one that faults or hangs costs only itself."""
    manifest = json.loads((HOME / "manifest.json").read_text())
    todo = [n for n in manifest if not chosen or any(re.fullmatch(c, n) for c in chosen)]
    scratch = out.parent / "capture_scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    notes: dict[str, str] = {}
    while todo:
        child = subprocess.Popen(
            [sys.executable, "-m", "evidence.capture.kernels", "worker", str(scratch), *todo],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        assert child.stdout
        current, seen, tail, pending = todo[0], time.monotonic(), "", b""
        while True:
            ready, _, _ = select.select([child.stdout], [], [], 1.0)
            chunk = os.read(child.stdout.fileno(), 65536) if ready else b""
            if ready and not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\n")
            for line in (raw.decode(errors="replace") for raw in lines):
                tail = (tail + line + "\n")[-3000:]
                word, _, rest = line.partition(" ")
                if word == "start":
                    current, seen = rest, time.monotonic()
                elif word == "done":
                    name, _, unsteady = rest.partition(" ")
                    todo.remove(name)
                    if unsteady != "{}":
                        notes[name] = f"differs between runs: arguments {unsteady}"
            if time.monotonic() - seen > 30:
                child.kill()
        child.wait()
        if todo and child.returncode:
            notes[current] = "hung" if child.returncode < 0 else tail.strip().splitlines()[-1]
            print(current, notes[current], "\n", tail[-600:])
            todo.remove(current)
        elif todo and not child.returncode:
            print("worker left early:", todo)
            break
    arrays = {}
    for name in manifest:
        path = scratch / f"{name}.npz"
        if path.exists():
            arrays |= {f"{name}|{i}": v for i, v in np.load(path).items()}
    np.savez_compressed(out, **arrays)
    print(json.dumps(notes, indent=1))
    (out.parent / "kernel_notes.json").write_text(json.dumps(notes, indent=1))
    print(out, out.stat().st_size, "bytes,", len({k.split("|")[0] for k in arrays}), "kernels")


def keep_digests(out: Path) -> None:
    """Add digests of the outputs in a file of `run` to digests.json."""
    path = HOME / "digests.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= {key: digest(array) for key, array in np.load(out).items()}
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(known.items())) + "\n}\n")


def example(folder: Path, out: Path) -> None:
    """Run the launch.toml of an example folder and write the arrays it left as expected.npz."""
    import tomllib

    from evidence.capture.gpu import Gpu

    launch = tomllib.loads((folder / "launch.toml").read_text())
    args: dict[str, Any] = {}
    for a in launch["arg"]:
        if "random" in a:
            args[a["name"]] = corpus.array(["in", a["type"], a["shape"], {"seed": a["random"]["seed"], "dist": "normal"}])
        elif "zeros" in a:
            args[a["name"]] = corpus.array(["out", a["type"], a["shape"]])
        else:
            args[a["name"]] = a["value"]
    Gpu().run(folder / launch["ptx"], launch["entry"], launch["grid"], launch["block"], [*args.values()], launch["shared"])
    arrays = {a["name"]: args[a["name"]] for a in launch["arg"] if "zeros" in a}
    np.savez_compressed(out, **arrays)
    print(out, {k: (v.dtype, v.shape, digest(v)) for k, v in arrays.items()}, out.stat().st_size, "bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[3:], Path(sys.argv[2]))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "run", "digest", "example"])
    parser.add_argument("names", nargs="*", help="regular expressions of kernel names (default: all)")
    parser.add_argument("--out", type=Path, default=HOME / "outputs.npz")
    options = parser.parse_args()
    if options.what == "build":
        build(options.names)
    elif options.what == "example":
        example(Path(options.names[0]), options.out)
    elif options.what == "digest":
        keep_digests(options.out)
    else:
        run(options.out, options.names)
