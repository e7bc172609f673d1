"""Entries of rooms above: what `host/`, `host/driver/` and `host/jobs/` call by a name, and do not import.

The names stand in `entries.pyi`, each with the module that has it, which is imported when the name is first used. What is asked
about the launches of a program (host/driver/inquiries.py) is found by such a name, too: a setting says it.
"""

from mmulator.base.lazy import face

__getattr__, __dir__, __all__ = face(__name__)
