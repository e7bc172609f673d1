"""The processes that handle what is judged: one compiles a source, another runs PTX. A folder comes in, one open file leaves.

`compile_source`: Python and nvcc do here what the source says, a file of CUDA C++, or of Python with a kernel of Triton. Only
PTX leaves, with the order of its parameters; nothing of it is believed (handover.py). `run_kernel`: PTX and arguments come in,
arrays and a report leave. Neither the reference nor its path is there. Every run begins with the same memory and is looked at
in the same way; outputs are filled with random bytes, so that an element that the kernel does not store is seen.
"""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mmulator.base.errors import ExecutionFault, LaunchError, LimitReached, MmulatorError, UnsupportedError
from mmulator.base.findings import union
from mmulator.base.interop import named_dtype
from mmulator.evaluation.judging import fence, mutation
from mmulator.host.campaign import Snapshot
from mmulator.host.jobs.inputs import Argument
from mmulator.host.jobs.job import Job, kernel_name, load_job, set_variables
from mmulator.host.jobs.maps import resolve
from mmulator.host.module import Kernel, Module
from mmulator.observation.tolerance.tolerance import tolerances_of_job


# compiling ------------------------------------------------------------------------------------------------------------
def compile_source(folder: str, answer: str) -> None:
    """Compile what `source.json` of a folder says, and write the result as JSON. answer: number of an open file."""
    said = json.loads(Path(folder, "source.json").read_text())
    try:
        made = _triton(said) if said["source"].endswith(".py") else _cuda(said)
    except MmulatorError as error:
        made = {"message": str(error)}
    except Exception as error:  # the source's own, or Triton's
        made = {"message": f"{type(error).__name__}: {error}"}
    with os.fdopen(int(answer), "wb") as file:
        file.write(json.dumps(made).encode())


def _cuda(said: Mapping[str, Any]) -> dict[str, Any]:
    module = Module.load(Path(said["source"]), device=said["device"], entry=said["entry"], nvcc=said["nvcc"])
    return {"ptx": module.source.text}


def _triton(said: Mapping[str, Any]) -> dict[str, Any]:
    """PTX of a kernel of Triton for arrays of the types and shapes that the launch has, and how it is launched."""
    from mmulator.doors.triton.offline import compiled_for
    from mmulator.doors.triton.versions import interface

    sys.path.insert(0, str(Path(said["source"]).parent))
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
def filling(key: int, run: int, number: int, size: int) -> np.ndarray:
    """The bytes of an output before a run: random ones, of which each second run has the complement of those before it.

    So what is not stored cannot be right in two runs, and no run can be told from another by it.

    key: secret. run: counted from 0. number: of the output. size: in bytes.
    """
    found = np.random.default_rng([key, run // 2, number]).integers(0, 256, size, np.uint8)
    return ~found if run % 2 else found


def run_kernel(folder: str, answer: str) -> None:
    """Run what `job.json` of a folder says. answer: number of an open file, which receives the outputs of each run, one after
    the other, then JSON, then its length as 8 bytes.
    """
    os.chdir(folder)  # so that messages name `kernel.ptx`, and no folder of this machine
    where = Path()
    said = json.loads((where / "job.json").read_text())
    found: dict[str, Any] = {}
    with os.fdopen(int(answer), "wb") as file:
        try:
            _run(where, said, found, file)
        except MmulatorError as error:
            kind = "fault" if isinstance(error, ExecutionFault) else "timeout" if isinstance(error, LimitReached) else "refused"
            found |= {"error": kind, "message": str(error), "findings": [f.as_dict() for f in error.findings]}
        text = json.dumps(found, default=str).encode()
        file.write(text + len(text).to_bytes(8, "little"))


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


def _run(where: Path, said: Mapping[str, Any], answer: dict[str, Any], file: BinaryIO) -> None:
    job = job_of(where, said)
    module: Module = job.load()
    kernel = module[kernel_name(module, job)]
    mutation.stand_in(kernel, said, answer)
    own = job.arrays()
    for argument in (*job.arguments, *job.variables):
        argument.value = resolve(argument.value, own)
    set_variables(module, job)
    device = job.device or module.default_device
    answer |= {"device": device, "kernel": kernel.name}
    arrays = {**module.variables, **own}
    variables = ((None, array) for _, array, writable in module.image.buffers if writable)
    memory = Snapshot([*variables, *((None, a) for a in own.values())])
    before = {name: a.tobytes() for name, a in own.items() if name not in said["outputs"]}
    found, changed = [], set[str]()
    if said.get("bounds"):
        answer["bounds"] = _bounds(kernel, job, said)
        memory.restore()
    for run, seed in enumerate(said["seeds"]):
        memory.restore()
        for number, name in enumerate(said["outputs"]):
            if name not in said["inout"]:
                raw = arrays[name].reshape(-1).view(np.uint8)
                raw[:] = filling(said["fill"], run, number, raw.size)
        report = kernel.launch(
            job.grid, job.block, [a.value for a in job.arguments], job.shared, job.device, sanitize=said["sanitize"], seed=seed,
            threads=said["threads"], cluster=job.cluster, cooperative=job.cooperative, memory=job.placed(), waits=job.waits,
            profile=said["profile"] and not run, certify=said.get("certify", False) and not run,
        )  # fmt: skip
        found.append(report.findings)
        if not run:
            answer["report"] = report.as_dict()
            answer["report"].pop("findings", None)
        changed |= {name for name, was in before.items() if own[name].tobytes() != was}
        for name in said["outputs"]:
            file.write(arrays[name].tobytes())
    answer["findings"] = [f.as_dict() for f in union(found)]
    answer["changed"] = sorted(changed)


def _bounds(kernel: Kernel, job: Job, said: Mapping[str, Any]) -> dict[str, Any]:
    """The tolerance that rounding justifies, for each output; a text where none is known."""
    why = "it is no argument of floating point that the launch stores to"
    try:
        found = tolerances_of_job(kernel, job, said["outputs"])
    except UnsupportedError as error:
        found, why = {}, error.message
    none = {"rtol": None, "atol": None, "unbounded": 0, "reason": why}
    return dict.fromkeys(said["outputs"], none) | {name: t.as_dict() for name, t in found.items()}


# programs -------------------------------------------------------------------------------------------------------------
def answer_to() -> None:
    """Let standard output be the open file whose number is the first word (sys.argv), which no process below may reach."""
    answer = int(sys.argv.pop(1))
    os.dup2(answer, 1)
    os.close(answer)
    fence.control(fence.DUMPABLE, 0)
