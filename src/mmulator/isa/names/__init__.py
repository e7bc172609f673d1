"""Names of matrix instructions as people write them: mnemonic.py (full names), words.py (a few words), cutlass.py (names in
CUTLASS), instruction.py (any of these to a single form).
"""
