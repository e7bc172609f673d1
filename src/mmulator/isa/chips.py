"""Names of chips: products and architectures, with the device whose arithmetic they have."""

import re
from typing import Any

from mmulator.base.errors import UnsupportedError, shown
from mmulator.isa.targets import DEVICES, RENAMED

REGISTERS = 65536  # of a multiprocessor, of every chip
# Products with these chips, for people, the best known first.
CHIPS: dict[str, str] = {
    "sm_70": "V100", "sm_72": "Xavier", "sm_75": "T4", "sm_80": "A100", "sm_86": "A2, A10", "sm_87": "Orin",
    "sm_89": "L40S, RTX 40", "sm_90": "H100, H200", "sm_100": "B200", "sm_103": "B300", "sm_107": "Rubin",
    "sm_110": "Thor", "sm_120": "RTX 50", "sm_121": "GB10",
}  # fmt: skip

_ARCHITECTURES = {"volta": "sm_70", "turing": "sm_75", "ampere": "sm_80", "ada": "sm_89", "hopper": "sm_90"}
# All names that are known (NVIDIA, CUDA GPU Compute Capability).
PRODUCTS: dict[str, tuple[str, ...]] = {
    "sm_70": ("V100", "Titan V"), "sm_72": ("Xavier",), "sm_75": ("T4", "RTX 2080", "RTX 2070", "RTX 2060", "Titan RTX"),
    "sm_80": ("A100", "A30", "A800"),
    "sm_86": ("A2", "A10", "A10G", "A16", "A40", "RTX A6000", "RTX A5000", "RTX A4000", "RTX 3090", "RTX 3080", "RTX 3070",
              "RTX 3060", "RTX 3050"),
    "sm_87": ("Orin",), "sm_89": ("L40S", "L40", "L4", "L20", "RTX 6000 Ada", "RTX 4090", "RTX 4080", "RTX 4070", "RTX 4060"),
    "sm_90": ("H100", "H200", "H20", "H800", "GH200"), "sm_100": ("B200", "B100", "GB200"), "sm_103": ("B300", "GB300"),
    "sm_107": ("Rubin", "R100", "VR200"),
    "sm_110": ("Thor", "T5000"),
    "sm_120": ("RTX 5090", "RTX 5080", "RTX 5070", "RTX 5060", "RTX 5050", "RTX PRO 6000"), "sm_121": ("GB10", "DGX Spark"),
}  # fmt: skip
_SERIES = {"20": "sm_75", "30": "sm_86", "40": "sm_89", "50": "sm_120"}  # RTX
# Words of a product's full name that do not change the chip.
_BESIDE = r"nvidia|geforce|tesla|jetson|agx|nx|gpu|sxm\d?|pcie|nvl|hbm\d?e?|laptop|mobile|blackwell|\d+gb"


def _plain(text: str) -> str:
    words = re.split(r"[\s_-]+", text.strip().lower())
    return "".join(w for w in words if not re.fullmatch(_BESIDE, w)).removeprefix("geforce")


_BY_CHIP = {_plain(name): device for device, names in PRODUCTS.items() for name in names}
_OLD_NAMES = {f"sm_{old}": f"sm_{new}" for old, new in RENAMED.items()}
DEVICE_WORDS = (*_ARCHITECTURES, *(name for name in _BY_CHIP if len(name) > 3))  # short ones are like anything


def device_of(text: str) -> str | None:
    """The device with the name of a chip or an architecture, as `sm_90`; None for any other text.

    text: `H100`, `h100`, `RTX 4090`, `hopper`, or a name that programs print: `NVIDIA H100 80GB HBM3`.
    """
    name = _plain(text)
    series = re.fullmatch(r"rtx(20|30|40|50)(?:[5-9]0)?(?:ti|super|d)*", name)
    return _SERIES[series[1]] if series else _ARCHITECTURES.get(name) or _BY_CHIP.get(name)


def as_device(device: Any) -> str:
    """The device that a user names, directly or by a chip, as `sm_90`. Raises UnsupportedError for an unknown device."""
    if device.__class__ is str and device in CHIPS:
        return device
    name = getattr(device, "sm", device)  # of inspect.Device
    if isinstance(name, str) and (found := name if name in DEVICES else device_of(name) or _OLD_NAMES.get(name)):
        return found
    hint = f"known devices: {', '.join(DEVICES)}, or a chip such as H100 (`mmulator list --devices`)"
    if isinstance(name, str) and name[-1:] in ("a", "f") and name[:-1] in DEVICES:
        hint = f"devices have no suffix: {name[:-1]} ({name} is a .target)"
    raise UnsupportedError(f"unknown device {shown(device)}", hint=hint)
