"""The house's one code generator: typed values that write LLVM text, a small language on top, and a cached engine.

types.py    scalar, vector and pointer types; structs laid out for Python and LLVM alike
values.py   `Value` (operators write instructions) and `Builder` (one function: blocks, control flow)
lang.py     `@native`: a Python function, read as a typed program and compiled
ops.py      operations that are no operators; rounding.py: rounding modes
loading.py  native functions loaded, each once
engine.py   text -> machine code, kept on disk between runs (store.py); locks.py: threads, forks, time limits
"""
