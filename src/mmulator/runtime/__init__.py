"""A kernel that runs: the native code that its machine code calls, and a launch with its memory, grid and workers.

`native/` is written in the language of base/codegen/; `compiled.py` and `code.py` hold what the compiler made of a kernel, with
the `options.py` that it was made by; `launch/` runs it.
"""
