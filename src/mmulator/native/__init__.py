"""Native code, written in the house's own small language (codegen/lang.py): what a kernel's machine code calls.

state.py has the structs that Python fills and native code runs on.
"""
