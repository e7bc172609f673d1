"""`mmulator mcp`: a server of the Model Context Protocol on standard input and output, for programs that repair kernels.

Each tool is a command with --json, in a process of its own; the answer is its document. Findings have a `fix` where their rule
has a repair (base/rules/fixes.py).
"""

import json
import subprocess
import sys
from typing import Any

from mmulator.base.errors import UnsupportedError, installs
from mmulator.base.rules.fixes import fix_of

_ABOUT = "Runs NVIDIA tensor-core kernels without a GPU, bit for bit, and says what is wrong with them."


def _answer(*words: str) -> dict[str, Any]:
    """The document that a command prints."""
    command = [sys.executable, "-m", "mmulator", words[0], "--json", *words[1:]]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"ok": False, "message": (done.stderr or done.stdout).strip()[-2000:]}
    for finding in found.get("findings", ()):
        finding["fix"] = fix_of(finding)
    return found


def judge(launch: str, kernel: str = "", seconds: float = 60.0, mutate: bool = False) -> dict[str, Any]:
    """One verdict on a kernel: right, wrong, undefined, fault and others, with the first element that differs and all findings.

    launch: path of a launch file (.toml), which has the arguments and the reference.
    kernel: path of PTX or a .cu in place of the file's.
    seconds: limit of the run.
    mutate: also says whether the check of the launch file notices kernels that are wrong.
    """
    words = [*(["--kernel", kernel] if kernel else []), "--seconds", str(seconds), *(["--mutate"] if mutate else [])]
    return _answer("judge", *words, launch)


def sanitize(launch: str, kernel: str = "", seconds: float = 60.0) -> dict[str, Any]:
    """The undefined behaviour of a launch: `findings`, each with rule, line, hint and, where there is one, `fix`: statements to
    `insert` before a line of the PTX, or what to `replace` it by. Parameters as of judge."""
    found = judge(launch, kernel, seconds)
    return {key: found[key] for key in ("ok", "outcome", "message", "findings") if key in found}


def why(launch: str, element: str) -> dict[str, Any]:
    """The reason of an output element's value: the store, and back through the instructions to what was loaded.

    launch: path of a launch file. element: `C[3,5]`.
    """
    return _answer("run", "--why", element, launch)


def explain(query: str) -> dict[str, Any]:
    """The meaning of a matrix instruction (`wgmma m64n128k16 f16`), a rule (`race-read-write`) or a word (`swizzle`)."""
    return _answer("explain", *query.split())


def mcp() -> None:
    """Serve judge, sanitize, why and explain to a program, by the Model Context Protocol.

    It reads standard input and writes standard output, opens no port, and ends when its input does. It starts what launch files
    name, with your rights.

    Example:
        mmulator mcp
    """
    try:
        from mcp.server import MCPServer
    except ImportError:
        raise UnsupportedError("the server needs the package mcp", hint=installs("mcp")) from None
    server = MCPServer("mmulator", instructions=_ABOUT)
    for tool in (judge, sanitize, why, explain):
        server.add_tool(tool)
    server.run("stdio")
