"""The Debug Adapter Protocol, for editors: Debug Adapter Protocol 1.71.

Two processes: the adapter (`adapter.py`), which speaks with the client and starts the program, and the debugger in the program
(`agent.py`), which answers what needs the launch (`answers.py`). `client.py` and `messages.py` are the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmulator.observation.debug.dap.agent import Agent
    from mmulator.observation.debug.program import Debugger


def front(debugger: Debugger, said: dict[str, Any]) -> Agent:
    """The front end in a program that an adapter started. said: what MMULATOR_DEBUG says."""
    from mmulator.observation.debug.dap.agent import Agent

    return Agent(debugger, said["address"])
