"""The house's one code generator: typed values that write LLVM text, a small language on top, and a cached engine.

types.py    scalar, vector and pointer types; structs laid out for Python and LLVM alike
values.py   `Value` (operators write instructions) and `Builder` (one function: blocks, control flow)
lang.py     `@native`: a Python function, read as a typed program and compiled
engine.py   text -> machine code, kept on disk between runs
"""
