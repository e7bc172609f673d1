"""Which tests `pytest` runs, and which only `pytest --full` does: two tables. Single tests are marked `full` beside them.

A quick test needs nothing but `[dev]`, starts no process that imports torch or Triton, and repeats no law that another one tries.
"""

from fnmatch import fnmatch

# Files and folders without a quick test, which are not even read: they need `[full]`, or try programs in processes of their own.
WHOLE = (
    "doors/triton*",
    "host/spread*",
)
# Of each test of these files one case in so many is quick, the first one always.
THINNED = {
    "chapters/*": 8,
}


def whole(name: str) -> bool:
    """Whether a file or folder, by its path in tests/, has no quick test."""
    return any(fnmatch(name, glob) for glob in WHOLE)


def step(name: str) -> int:
    """One case of so many of a test is quick, by the path of its file."""
    return next((n for glob, n in THINNED.items() if fnmatch(name, glob)), 1)
