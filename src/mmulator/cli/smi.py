"""`nvidia-smi` for programs under `mmulator exec`: what scripts ask it, of the device that they find."""

import os
import sys
import uuid
from collections.abc import Sequence

from mmulator.host.driver.chips import DRIVER_VERSION, MIB, DeviceProperties, chip
from mmulator.host.settings import Settings

DRIVER, CUDA = "590.44.01", f"{DRIVER_VERSION // 1000}.{DRIVER_VERSION % 1000 // 10}"
_UNKNOWN = "temperature.gpu power.draw power.limit serial persistence_mode compute_mode mig.mode.current ecc.mode.current pstate"


def fields(found: DeviceProperties) -> dict[str, tuple[str, str]]:
    """Fields of a device that `--query-gpu` names: value and unit of each."""
    identifier = str(uuid.UUID(bytes=found.uuid))
    capability, clock, memory = "{}.{}".format(*found.capability), str(found.clock // 1000), str(found.memory // MIB)
    plain = {
        "index": "0", "count": "1", "name": found.product, "gpu_name": found.product, "driver_version": DRIVER,
        "uuid": f"GPU-{identifier}", "gpu_uuid": f"GPU-{identifier}", "compute_cap": capability, "pci.bus_id": "00000000:01:00.0",
        **dict.fromkeys(_UNKNOWN.split(), "[N/A]"),
    }  # fmt: skip
    counted = {
        "memory.total": memory, "memory.free": memory, "memory.used": "0", "memory.reserved": "0", "utilization.gpu": "0",
        "utilization.memory": "0", "clocks.sm": clock, "clocks.max.sm": clock,
    }  # fmt: skip
    units = {"memory": " MiB", "utilization": " %", "clocks": " MHz"}
    return {**{name: (value, "") for name, value in plain.items()},
            **{name: (value, units[name.partition(".")[0]]) for name, value in counted.items()}}  # fmt: skip


def answer(words: Sequence[str], found: DeviceProperties) -> tuple[int, str]:
    """The exit code, and what is printed. words: arguments of nvidia-smi."""
    options = {name: value for name, _, value in (word.partition("=") for word in words)}
    known = fields(found)
    if "-L" in options or "--list-gpus" in options:
        return 0, f"GPU 0: {found.product} (UUID: {known['uuid'][0]})\n"
    if (asked := options.get("--query-gpu")) is not None:
        shape, names = options.get("--format", "csv").split(","), [name.strip() for name in asked.split(",")]
        for name in names:
            if name not in known:
                return 2, f'Field "{name}" is not a valid field to query.\n'
        lines = [] if "noheader" in shape else [", ".join(f"{n} [{known[n][1].strip()}]" if known[n][1] else n for n in names)]
        lines.append(", ".join(known[n][0] + ("" if "nounits" in shape else known[n][1]) for n in names))
        return 0, "".join(f"{line}\n" for line in lines)
    edge = "+" + "-" * 77 + "+\n"
    told = (f"NVIDIA-SMI {DRIVER}   Driver Version: {DRIVER}   CUDA Version: {CUDA}", "mmulator: a model; there is no GPU here",
            f"0  {found.product}   0MiB / {known['memory.total'][0]}MiB")  # fmt: skip
    return 0, edge + "".join(f"| {line:<75} |\n" for line in told) + edge


def main() -> None:
    code, text = answer(sys.argv[1:], chip(Settings.from_environment(os.environ).device))
    sys.stdout.write(text)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
