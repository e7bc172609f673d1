"""Matrix instructions as people name them: mnemonic.py (in full), words.py (a few words), cutlass.py (CUTLASS's names),
instruction.py (the one instruction that any of these means)."""
