"""Running kernels on the CPU. Each folder knows only those before it:

runtime/   native code: memory, registers, scheduling, what is pending, what is too much to write into each block
emit/      what the code of a block is written with
meaning/   what instructions do
compile/   a program to machine code
launch/    grids: arguments, memory, workers, faults, the report

state.py has the structs that native code and Python share. On top: module.py (what a user holds), variables.py (its variables),
backend.py (what a backend does), cpu.py (the CPU as one).
"""
