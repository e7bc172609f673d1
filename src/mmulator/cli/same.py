"""`mmulator same`: whether two kernels store the same bits, for all values of their inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from mmulator.cli.parser import Json, Option, Positional


def same(
    first: Annotated[Path, Positional("A launch file.", "LAUNCH.toml")],
    second: Annotated[Path, Positional("Another launch file, or a kernel for the launch of the first.", "LAUNCH.toml|KERNEL")],
    entry: Annotated[str | None, Option("The kernel of the second file; a part of its C++ name will do.", "NAME")] = None,
    device: Annotated[str | None, Option("Whose arithmetic, such as sm_90 or H100.", "DEVICE")] = None,
    json: Json = False,
) -> None:
    """Whether two kernels store the same bits at one size, for all values of their inputs.

    Each stored element is followed back to the inputs: "same bits" where both kernels compute it by the same operations in the
    same order, as this device adds them; "same algebra" where they are equal as real numbers; "different" with values that tell
    them apart; "not decided" with the reason. Arrays and parameters of floating point are inputs, other parameters are fixed.

    The exit code is 0 for the same bits or the same algebra, 3 if they are different, 4 if it is not decided.

    Examples:
        mmulator same --device H100 launch.toml other.ptx
    """
    from dataclasses import replace

    from mmulator.cli.output import print_json, print_line
    from mmulator.host.jobs.job import kernel_name, load_job
    from mmulator.observation.same.comparison import ALGEBRA, DIFFERENT, SAME
    from mmulator.observation.same.comparison import same as compared

    a = load_job(first, expecting=False)
    b = load_job(second, expecting=False) if second.suffix == ".toml" else replace(a, ptx=second, entry=entry or a.entry)
    modules = [job.load() for job in (a, b)]
    kernels = [module[kernel_name(module, job)] for module, job in zip(modules, (a, b))]
    launches: list[dict[str, Any]] = [
        {"grid": j.grid, "block": j.block, "args": [x.value for x in j.arguments], "shared": j.shared, "cluster": j.cluster,
         "memory": j.placed()}
        for j in (a, b)
    ]  # fmt: skip
    found = compared(kernels[0], kernels[1], **launches[0], device=device or a.device, launch_b=launches[1])
    if json:
        print_json("same", found.as_dict())
    else:
        for line in str(found).splitlines():
            print_line(line, 4)
    code = {SAME: 0, ALGEBRA: 0, DIFFERENT: 3}.get(found.grade, 4)
    if code:
        sys.exit(code)
