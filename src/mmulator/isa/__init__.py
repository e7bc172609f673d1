"""What exists: element types, targets, and one table of rows. A file a chapter of the PTX ISA; beside the chapters:

types.py, targets.py, special_registers.py   element types; targets, versions, devices; predefined registers
row.py, effects.py   what a row says: slots, operands, needs, rule, status; what it does besides computing
form.py              a row with its slots filled: what a program has
pieces.py, shapes.py what rows are made of; of matrix instructions
table.py, matrix.py  all rows; those of matrix instructions alone
match.py, fit.py, wrong.py   a mnemonic to its form; which rows take it; what is wrong with it
names/               matrix instructions as people name them
"""
