"""The debugger: a launch that stops between two instructions of a warp, forwards and backwards.

`session.py` is the motor, which knows no front end. `breakpoints.py` is where it stops, `machine.py` what there is to see at a
stop, `program.py` a program's launches one after the other. `terminal.py` and the adapter of editors are front ends.
`views/` is what a stop shows: registers, matrices, tiles of memory, barriers, waits.
"""
