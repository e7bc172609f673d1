"""Write the texts beside the programs anew: python -m tests.ub --bless [NAMES]. What changed, git diff shows.

NAMES: parts of the names of programs, `races/lock`; without names all programs.
"""

import sys

from tests.support import breaches

if __name__ == "__main__":
    _, wish, *names = (*sys.argv, "")[: max(len(sys.argv), 2)]
    if wish != "--bless":
        sys.exit(__doc__)
    for file in breaches.every():
        name = f"{file.parent.name}/{file.name}"
        if (not names or any(part in name for part in names)) and breaches.bless(file):
            print(name)
