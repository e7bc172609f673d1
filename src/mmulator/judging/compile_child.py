"""The process that compiles a judged source to PTX: a file of CUDA C++, or of Python with a kernel of Triton.

Python and nvcc do here what the source says. Only PTX leaves, with the order of its parameters; it is run by another process.
"""

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.errors import LaunchError, MmulatorError, UnsupportedError
from mmulator.host.module import Module
from mmulator.interop import named_dtype


def main(folder: str) -> None:
    """Compile what `source.json` of a folder says, and write `kernel.ptx` and `compiled.json`."""
    where = Path(folder)
    said = json.loads((where / "source.json").read_text())
    try:
        made = _triton(said) if said["source"].endswith(".py") else _cuda(said)
    except MmulatorError as error:
        made = {"message": str(error)}
    except Exception as error:  # the source's own, or Triton's
        made = {"message": f"{type(error).__name__}: {error}"}
    (where / "kernel.ptx").write_text(made.pop("ptx", ""))
    (where / "compiled.json").write_text(json.dumps(made))


def _cuda(said: Mapping[str, Any]) -> dict[str, Any]:
    module = Module.load(Path(said["source"]), device=said["device"], entry=said["entry"], nvcc=said["nvcc"])
    return {"ptx": module.source.text}


def _triton(said: Mapping[str, Any]) -> dict[str, Any]:
    """PTX of a kernel of Triton for arrays of the types and shapes that the launch has, and how it is launched."""
    from mmulator.doors.triton.offline import compiled_for
    from mmulator.doors.triton.versions import interface

    kernel = runpy.run_path(said["source"], run_name="__judged__").get(said["entry"])
    if kernel is None:
        raise LaunchError(f"{said['source']} has no {said['entry']}", hint="entry is the name of the function below @triton.jit")
    given = {a["name"]: np.zeros(a["shape"], named_dtype(a["type"])) if "shape" in a else a["value"] for a in said["args"]}
    made = compiled_for(kernel, given, said["device"])
    metadata = made.metadata
    if getattr(metadata, "tensordesc_meta", None):
        raise UnsupportedError("a kernel of Triton with tensor descriptors is judged as a program, or by a launch file")
    names = [name for name, ty in made.source.signature.items() if ty != "constexpr"]
    sizes = [getattr(metadata, f"{kind}_scratch_size", 0) or 0 for kind in ("global", "profile")][: interface().scratch]
    return {
        "ptx": made.ptx, "entry": made.name, "threads": metadata.num_warps * 32, "shared": metadata.shared, "params": names,
        "scratch": sizes, "cluster": list(getattr(metadata, "cluster_dims", ())) or [getattr(metadata, "num_ctas", 1), 1, 1],
        "cooperative": bool(getattr(metadata, "launch_cooperative_grid", False)),
    }  # fmt: skip
