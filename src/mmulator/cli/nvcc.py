"""`mmulator nvcc`: nvcc, by whose programs mmulator is found."""

import sys
from typing import Annotated

from mmulator.cli.parser import ProgramWords


def begin(arguments: list[str]) -> None:
    """Run nvcc at once. Returns where there is an error to print, or help. A first `--` makes `--help` nvcc's, too."""
    from mmulator.base.errors import MmulatorError

    if arguments in (["-h"], ["--help"]):
        return
    try:
        code = _run(arguments[1:] if arguments[:1] == ["--"] else arguments, replace=True)
    except MmulatorError:
        return
    raise SystemExit(code)


def _run(arguments: list[str], replace: bool = False) -> int:
    """Run nvcc, whose linker finds our libraries, too."""
    import os
    from contextlib import suppress

    from mmulator.base.errors import UnsupportedError
    from mmulator.cli.program import libraries
    from mmulator.ptx.toolkit.wrapper import main

    if "MMULATOR_EXEC" not in os.environ:  # exec has said where they are
        with suppress(UnsupportedError):  # another system, where programs are compiled and do not run
            os.environ["LIBRARY_PATH"] = libraries(os.environ)["LIBRARY_PATH"]
    return main(arguments, replace)


_ARGUMENTS = ProgramWords("As nvcc takes them.", "ARGS...", whole=True)


def nvcc(arguments: Annotated[list[str] | None, _ARGUMENTS] = None) -> None:
    """Compile CUDA C++ by NVIDIA's nvcc, so that the program runs here.

    All arguments are nvcc's, and so are the output and the exit code. What differs: CUDA's runtime is linked as a shared library
    (-cudart shared), the PTX is kept beside machine code (code=sm_90a becomes code=[compute_90a,sm_90a]) and behind a cubin
    (-cubin), with lines of the source (-lineinfo), and -arch=native is the device that programs find.

    nvcc is $MMULATOR_NVCC, or that on PATH, in $CUDA_HOME, $CUDA_PATH, /usr/local/cuda or among Python's packages.

    Examples:
        mmulator nvcc -O3 -arch=sm_90a main.cu -o main
        mmulator nvcc -cubin -arch=sm_90a kernel.cu
    """
    sys.exit(_run(arguments or []))
