"""The processes that handle what is judged: one compiles a source, another runs PTX. Folders of files come in and leave.

`compile_source`: Python and nvcc do here what the source says, a file of CUDA C++, or of Python with a kernel of Triton. Only
PTX leaves, with the order of its parameters. `run_kernel`: PTX and arguments come in, arrays and a report leave. Neither the
reference nor its path is there. Outputs are filled with other bytes before each run, so that an element that the kernel does
not store is seen.
"""

import json
import os
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.base.errors import ExecutionFault, LaunchError, LimitReached, MmulatorError, UnsupportedError
from mmulator.base.findings import union
from mmulator.base.interop import named_dtype
from mmulator.host.campaign import Snapshot
from mmulator.host.jobs.inputs import Argument
from mmulator.host.jobs.job import Job, kernel_name, load_job, set_variables
from mmulator.host.jobs.maps import resolve
from mmulator.host.module import Module

FIRST = 0xFF  # of all bytes: NaN in every type of floats


# compiling ------------------------------------------------------------------------------------------------------------
def compile_source(folder: str) -> None:
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


# running --------------------------------------------------------------------------------------------------------------
def poison(array: np.ndarray, run: int) -> None:
    """Fill an array: with NaNs (integers: ones) in the first run, with random bytes in later ones."""
    raw = array.reshape(-1).view(np.uint8)
    raw[:] = FIRST if not run else np.random.default_rng(run).integers(0, 256, raw.size, np.uint8)


def run_kernel(folder: str) -> None:
    """Run what `job.json` of a folder says, and write `answer.json` and an .npz for each seed."""
    os.chdir(folder)  # so that messages name `kernel.ptx`, and no folder of this machine
    where = Path()
    said = json.loads((where / "job.json").read_text())
    answer: dict[str, Any] = {}
    try:
        _run(where, said, answer)
    except MmulatorError as error:
        kind = "fault" if isinstance(error, ExecutionFault) else "timeout" if isinstance(error, LimitReached) else "refused"
        answer |= {"error": kind, "message": str(error), "findings": [f.as_dict() for f in error.findings]}
    (where / "answer.json").write_text(json.dumps(answer, default=str))


def job_of(where: Path, said: Mapping[str, Any]) -> Job:
    """The launch that `job.json` describes: by a launch file, or by itself."""
    if "launch" in said:
        job = load_job(said["launch"], expecting=False)
        job.ptx = Path(said["ptx"]) if said["ptx"] else job.ptx
        job.device = said["device"] or job.device
        return job
    job = Job(Path(said["ptx"]), said["entry"], said["grid"], said["block"], said["shared"], said["device"])
    job.cluster, job.cooperative = said["cluster"], said["cooperative"]
    for item in said["args"]:
        value = item.get("value")
        if "array" in item:
            value = np.load(where / item["array"], allow_pickle=False).view(named_dtype(item["type"])).reshape(item["shape"])
        elif "scratch" in item:
            value = np.zeros(item["scratch"], np.uint8)
        job.arguments.append(Argument(item["name"], value))
    return job


def _run(where: Path, said: Mapping[str, Any], answer: dict[str, Any]) -> None:
    job = job_of(where, said)
    module: Module = job.load()
    kernel = module[kernel_name(module, job)]
    own = job.arrays()
    for argument in (*job.arguments, *job.variables):
        argument.value = resolve(argument.value, own)
    set_variables(module, job)
    device = job.device or module.default_device
    answer |= {"device": device, "kernel": kernel.name}
    arrays = {**module.variables, **own}
    outputs = [name for name in said["outputs"] if name not in said["inout"]]
    variables = ((None, array) for _, array, writable in module.image.buffers if writable)
    memory = Snapshot([*variables, *((None, a) for a in own.values())])
    found = []
    for run, seed in enumerate(said["seeds"]):
        memory.restore()
        for name in outputs:
            poison(arrays[name], run)
        before = {} if run else {name: a.tobytes() for name, a in own.items() if name not in said["outputs"]}
        report = kernel.launch(
            job.grid, job.block, [a.value for a in job.arguments], job.shared, job.device, sanitize=said["sanitize"] and not run,
            seed=seed, threads=said["threads"], cluster=job.cluster, cooperative=job.cooperative, memory=job.placed(),
            waits=job.waits, profile=said["profile"] and not run, certify=said.get("certify", False) and not run,
        )  # fmt: skip
        found.append(report.findings)
        if not run:
            answer["report"] = report.as_dict()
            answer["report"].pop("findings", None)
            answer["changed"] = [name for name, was in before.items() if own[name].tobytes() != was]
        raw: dict[str, Any] = {n: np.frombuffer(arrays[n].tobytes(), np.uint8) for n in said["outputs"]}
        np.savez(where / f"seed{run}.npz", **raw)
    answer["findings"] = [f.as_dict() for f in union(found)]

