"""Native code, written in the package's own small language (base/codegen/lang.py): the functions that a kernel's machine code
calls.

state.py has the structs that Python fills and native code runs on.
"""
