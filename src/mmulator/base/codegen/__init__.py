"""The code generator: typed values that write LLVM text, a small language on top of them, and an engine with a cache.

types.py    scalar, vector and pointer types; structs with one layout for Python and LLVM
values.py   `Value` (operators write instructions) and `Builder` (one function: blocks, control flow)
lang.py     `@native`: a Python function, read as a typed program and compiled
ops.py      operations without an operator; rounding.py: rounding modes
loading.py  native functions, each loaded once
engine.py   text -> machine code, kept on disk between runs (store.py); locks.py: threads, forks, time limits
"""
