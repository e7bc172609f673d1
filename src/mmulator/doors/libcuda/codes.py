"""Result codes of the driver API (CUresult), their texts, and those of faults."""

from enum import IntEnum
from functools import cache
from pathlib import Path

Code = IntEnum("Code", {  # by their names without CUDA_ERROR_
    "SUCCESS": 0, "INVALID_VALUE": 1, "OUT_OF_MEMORY": 2, "NOT_INITIALIZED": 3, "DEINITIALIZED": 4, "PROFILER_DISABLED": 5,
    "PROFILER_NOT_INITIALIZED": 6, "PROFILER_ALREADY_STARTED": 7, "PROFILER_ALREADY_STOPPED": 8, "STUB_LIBRARY": 34,
    "CALL_REQUIRES_NEWER_DRIVER": 36, "DEVICE_UNAVAILABLE": 46, "NO_DEVICE": 100, "INVALID_DEVICE": 101,
    "DEVICE_NOT_LICENSED": 102, "INVALID_IMAGE": 200, "INVALID_CONTEXT": 201, "CONTEXT_ALREADY_CURRENT": 202, "MAP_FAILED": 205,
    "UNMAP_FAILED": 206, "ARRAY_IS_MAPPED": 207, "ALREADY_MAPPED": 208, "NO_BINARY_FOR_GPU": 209, "ALREADY_ACQUIRED": 210,
    "NOT_MAPPED": 211, "NOT_MAPPED_AS_ARRAY": 212, "NOT_MAPPED_AS_POINTER": 213, "ECC_UNCORRECTABLE": 214,
    "UNSUPPORTED_LIMIT": 215, "CONTEXT_ALREADY_IN_USE": 216, "PEER_ACCESS_UNSUPPORTED": 217, "INVALID_PTX": 218,
    "INVALID_GRAPHICS_CONTEXT": 219, "NVLINK_UNCORRECTABLE": 220, "JIT_COMPILER_NOT_FOUND": 221, "UNSUPPORTED_PTX_VERSION": 222,
    "JIT_COMPILATION_DISABLED": 223, "UNSUPPORTED_EXEC_AFFINITY": 224, "UNSUPPORTED_DEVSIDE_SYNC": 225, "CONTAINED": 226,
    "INVALID_SOURCE": 300, "FILE_NOT_FOUND": 301, "SHARED_OBJECT_SYMBOL_NOT_FOUND": 302, "SHARED_OBJECT_INIT_FAILED": 303,
    "OPERATING_SYSTEM": 304, "INVALID_HANDLE": 400, "ILLEGAL_STATE": 401, "LOSSY_QUERY": 402, "NOT_FOUND": 500,
    "NOT_READY": 600, "ILLEGAL_ADDRESS": 700, "LAUNCH_OUT_OF_RESOURCES": 701, "LAUNCH_TIMEOUT": 702,
    "LAUNCH_INCOMPATIBLE_TEXTURING": 703, "PEER_ACCESS_ALREADY_ENABLED": 704, "PEER_ACCESS_NOT_ENABLED": 705,
    "PRIMARY_CONTEXT_ACTIVE": 708, "CONTEXT_IS_DESTROYED": 709, "ASSERT": 710, "TOO_MANY_PEERS": 711,
    "HOST_MEMORY_ALREADY_REGISTERED": 712, "HOST_MEMORY_NOT_REGISTERED": 713, "HARDWARE_STACK_ERROR": 714,
    "ILLEGAL_INSTRUCTION": 715, "MISALIGNED_ADDRESS": 716, "INVALID_ADDRESS_SPACE": 717, "INVALID_PC": 718,
    "LAUNCH_FAILED": 719, "COOPERATIVE_LAUNCH_TOO_LARGE": 720, "TENSOR_MEMORY_LEAK": 721, "NOT_PERMITTED": 800,
    "NOT_SUPPORTED": 801, "SYSTEM_NOT_READY": 802, "SYSTEM_DRIVER_MISMATCH": 803, "COMPAT_NOT_SUPPORTED_ON_DEVICE": 804,
    "MPS_CONNECTION_FAILED": 805, "MPS_RPC_FAILURE": 806, "MPS_SERVER_NOT_READY": 807, "MPS_MAX_CLIENTS_REACHED": 808,
    "MPS_MAX_CONNECTIONS_REACHED": 809, "MPS_CLIENT_TERMINATED": 810, "CDP_NOT_SUPPORTED": 811, "CDP_VERSION_MISMATCH": 812,
    "STREAM_CAPTURE_UNSUPPORTED": 900, "STREAM_CAPTURE_INVALIDATED": 901, "STREAM_CAPTURE_MERGE": 902,
    "STREAM_CAPTURE_UNMATCHED": 903, "STREAM_CAPTURE_UNJOINED": 904, "STREAM_CAPTURE_ISOLATION": 905,
    "STREAM_CAPTURE_IMPLICIT": 906, "CAPTURED_EVENT": 907, "STREAM_CAPTURE_WRONG_THREAD": 908, "TIMEOUT": 909,
    "GRAPH_EXEC_UPDATE_FAILURE": 910, "EXTERNAL_DEVICE": 911, "INVALID_CLUSTER_SIZE": 912, "FUNCTION_NOT_LOADED": 913,
    "INVALID_RESOURCE_TYPE": 914, "INVALID_RESOURCE_CONFIGURATION": 915, "KEY_ROTATION": 916, "UNKNOWN": 999,
})  # fmt: skip
CODES: dict[int, str] = {int(code): code.name for code in Code}


@cache
def texts() -> dict[int, tuple[str, str]]:
    """(the runtime's name, the text) of each error by its code; the texts of the driver are the same (asked of an H200)."""
    lines = Path(__file__).with_name("errors.txt").read_text().splitlines()[1:]
    return {int(code): (name, text) for code, name, text in (line.split(" ", 2) for line in lines)}


# The code of a launch that ended in a fault, by ExecutionFault.fault. "cuda.h": the text of the code says so.
FAULTS: dict[str, Code] = {
    # outside of memory: seen on an H200 for global and shared memory, wgmma descriptors, other blocks' shared memory, and a stack
    # that calls have used up
    **dict.fromkeys((
        "OUT_OF_BOUNDS", "NULL_POINTER", "READ_ONLY", "SHARED_OUT_OF_BOUNDS", "LOCAL_OUT_OF_BOUNDS", "WGMMA_ADDRESS",
        "STACK_OVERFLOW",
    ), Code.ILLEGAL_ADDRESS),
    "ASSERTION": Code.ASSERT,  # cuda.h
    "MISALIGNED": Code.MISALIGNED_ADDRESS,  # cuda.h
    # cuda.h: a corrupt call stack, or one beyond its limit
    **dict.fromkeys(("ALLOCA_OVERFLOW", "BAD_STACK"), Code.HARDWARE_STACK_ERROR),
    # cuda.h: an instruction for certain state spaces got an address that belongs to none of them
    **dict.fromkeys(("WRONG_SPACE", "NOT_SHARED", "BEYOND_SPACE"), Code.INVALID_ADDRESS_SPACE),
    "BAD_CALL": Code.INVALID_PC,  # the program counter would leave the code
    # seen on an H200: barriers whose lanes or counts differ, selectors, part of a warpgroup, maps and coordinates of a tensor
    # copy, `.shared` with an address of another block, copies between blocks without a cluster
    **dict.fromkeys((
        "BAD_BARRIER", "BARRIER_COUNTS", "BARRIER_LANES", "SPARSE_SELECTOR", "WGMMA_LANES", "TENSOR_MAP", "OTHER_CTA",
        "NO_CLUSTER",
    ), Code.ILLEGAL_INSTRUCTION),
    # a GPU would not come back: of its codes the one that says so
    **dict.fromkeys(("DEADLOCK", "LIVELOCK", "TIMEOUT"), Code.LAUNCH_TIMEOUT),
    # `trap` and `brkpt` are the unspecified launch failure (seen on an H200); so is what a GPU leaves undefined and this
    # machine names: mbarriers, ranks that are not there or have gone, part of a warp, branches, sizes, registers
    **dict.fromkeys((
        "TRAP", "PRINT", "BAD_BRANCH", "PARTIAL_WARP", "WGMMA_MISMATCH", "WGMMA_SCALE", "NO_SUCH_RANK", "CTA_EXITED", "REGISTERS",
        "CLUSTER_BARRIER", "BULK_SIZE", "BULK_IGNORED", "NO_MBARRIER", "MBARRIER_RANGE", "MBARRIER_ARRIVALS", "MBARRIER_BYTES",
        "MBARRIER_COMPLETES", "MBARRIER_ELSEWHERE", "MBARRIER_STORED",
        "TENSOR_COLUMNS", "TENSOR_COUNT", "TENSOR_RELINQUISHED", "TENSOR_DEALLOC", "TENSOR_PAIR", "TENSOR_ALIGNED",
        "TENSOR_INSTRUCTION", "TENSOR_MATRIX", "TENSOR_ADDRESS",
    ), Code.LAUNCH_FAILED),
}  # fmt: skip
