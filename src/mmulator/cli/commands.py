"""The commands by name, each with the first paragraph of its help: a list of them loads none."""

from importlib import import_module
from typing import Any

ABOUT = "NVIDIA tensor-core kernels without the GPU, bit for bit."
# Each is the function (or group of commands) of that name, in the module of that name or the one in _MODULES.
COMMANDS: dict[str, str] = {
    "run": "Run a kernel on the CPU with a device's bits.",
    "exec": "Run a program that uses a GPU on a machine without one.",
    "debug": "Debug kernels, forwards and backwards, in a terminal.",
    "nvcc": "Compile CUDA C++ by NVIDIA's nvcc, so that the program runs here.",
    "check": "Verify a PTX module: every instruction and operand, for its .target and .version.",
    "explain": "Explain a matrix instruction: operands, legal targets, each device's arithmetic, rules, text to paste. Or a "
        "rule of the sanitizer (`run --sanitize`): what must hold, and an example; `explain rules` lists them. Or one "
        "of the words swizzle, descriptor, fragment, proxy-fence, mbarrier, sparsity, bank.",
    "list": "List matrix instructions, those that differ only in shape, type or a qualifier in one line.",
    "why": "Show how each device adds up one element of a matrix product: chunks, exponents, the bits that are cut, the "
        "rounding.",
    "same": "Whether two kernels store the same bits at one size, for all values of their inputs.",
    "compare-builds": "Which kernels have other bits in another build, since which line, and whether their algebra is the same.",
    "reduce": "Make a failing launch small: instructions, grid, arrays and values go as long as it fails in the same way.",
    "layout": "Which lane and register holds which element of a matrix, its metadata or its scale factors.",
    "explore": "Show layouts, shared memory, tensor maps, sparse metadata, number formats and sums in a browser.",
    "conformance": "Compare the model with a GPU, register by register, on operands that are hard to get right.",
    "judge": "One verdict on a kernel or a program.",
    "mcp": "Serve judge, sanitize, why and explain to a program, by the Model Context Protocol.",
    "schema": "The JSON Schema of a document, or without a name which documents there are.",
    "doctor": "A report on this machine: the libraries and devices that mmulator can use.",
    "descriptor": "Encode, decode, check and draw matrix descriptors of wgmma; derive them from CuTe layouts.",
    "tensormap": "Encode, decode, check and draw tensor maps: the 128 bytes, and where each element of a box lands.",
    "sparse": "Matrices for sparse instructions: check, prune, compress, expand, lanes, decode.",
    "cache": "Where compiled code is kept, and how much of it.",
}  # fmt: skip
_MODULES = {"list": "listing"}  # a module `list` would hide the builtin in this package


def command_of(name: str) -> Any:
    """The function of a command, or its group of commands."""
    own = name.replace("-", "_")
    return getattr(import_module(f"mmulator.cli.{_MODULES.get(own, own)}"), own)
