"""`python -m mmulator`: the command `mmulator`."""

from mmulator.cli import main

main()
