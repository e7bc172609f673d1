"""Faults of bulk copies as sentences."""

from mmulator.native.state import FaultKind
from mmulator.ptx.tree import Instruction

_COPIES = "(PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk)"

RULES = {
    FaultKind.BULK_SIZE: f"bulk copies and reductions: the size is a multiple of 16 {_COPIES}",
    FaultKind.BULK_IGNORED: "cp.async.bulk.ignore_oob: ignoreBytesLeft and ignoreBytesRight are 0 to 15 (PTX ISA 9.4, Data "
    "Movement and Conversion Instructions: cp.async.bulk)",
    FaultKind.NO_CLUSTER: "copies from shared memory to that of a block of the cluster take a launch in clusters; without one "
    f"they are illegal instructions to an H200 {_COPIES}",
}
HINTS = {
    FaultKind.BULK_SIZE: "round the size up and the buffers too, or copy what is left over with other instructions",
    FaultKind.BULK_IGNORED: "let the copy begin at the last multiple of 16 before the first byte that is wanted, and end at the "
    "first one after the last",
    FaultKind.NO_CLUSTER: "launch with cluster=(1, 1, 1) or more, or write .reqnctapercluster",
}


def texts(ins: Instruction, where: str, size: int) -> dict[FaultKind, str]:
    """The message for each kind of fault of a bulk copy. where: `address 0x...: byte 4 of argument 0, which has 64`."""
    return {
        FaultKind.BULK_SIZE: f"{ins.mnemonic} of {size} bytes, which is no multiple of 16, at {where}",
        FaultKind.BULK_IGNORED: f"{ins.mnemonic} is to ignore {size} bytes at one end of what begins at {where}",
        FaultKind.NO_CLUSTER: f"{ins.mnemonic} in a launch without clusters",
    }
