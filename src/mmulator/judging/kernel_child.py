"""The process that runs a judged kernel: PTX and arguments come in as files of a folder, arrays and a report leave as files.

Neither the reference nor its path is there. Outputs are filled with other bytes before each run, so that an element that the
kernel does not store is seen.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mmulator.errors import ExecutionFault, LimitReached, MmulatorError
from mmulator.findings import union
from mmulator.host.campaign import Snapshot
from mmulator.host.module import Module
from mmulator.interop import named_dtype
from mmulator.jobs.inputs import Argument
from mmulator.jobs.job import Job, kernel_name, load_job, set_variables
from mmulator.jobs.maps import resolve

FIRST = 0xFF  # of all bytes: NaN in every type of floats


def poison(array: np.ndarray, run: int) -> None:
    """Fill an array: with NaNs (integers: ones) in the first run, with random bytes in later ones."""
    raw = array.reshape(-1).view(np.uint8)
    raw[:] = FIRST if not run else np.random.default_rng(run).integers(0, 256, raw.size, np.uint8)


def main(folder: str) -> None:
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
            waits=job.waits, profile=said["profile"] and not run,
        )  # fmt: skip
        found.append(report.findings)
        if not run:
            answer["report"] = report.as_dict()
            answer["report"].pop("findings", None)
            answer["changed"] = [name for name, was in before.items() if own[name].tobytes() != was]
        raw: dict[str, Any] = {n: np.frombuffer(arrays[n].tobytes(), np.uint8) for n in said["outputs"]}
        np.savez(where / f"seed{run}.npz", **raw)
    answer["findings"] = [f.as_dict() for f in union(found)]

