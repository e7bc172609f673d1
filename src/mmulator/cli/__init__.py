"""Command line: one file per command, heavy imports inside the commands."""

import gc
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `mmulator`. Ends the process: exit code 0 only if all is well, 1 for an error, 2 for wrong usage.

    arguments: instead of those of the process.
    """
    try:
        code = _ended(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:  # as modules are imported; `run` says the same of its commands
        sys.unraisablehook = lambda _: None
        print("interrupted", file=sys.stderr)
        code = 130
    gc.freeze()  # all goes with the process: nobody needs to look for what might go before
    sys.exit(code)


def _ended(words: list[str]) -> int:
    if words[:1] == ["exec"]:
        from mmulator.cli.program import begin

        begin(words[1:])
    if words[:1] == ["nvcc"]:
        from mmulator.cli import nvcc

        nvcc.begin(words[1:])
    from mmulator.cli.app import run

    return run(words)
