"""The instruction set: element types, targets, and one table of rows, with a file for each chapter of the PTX ISA. Other files:

types.py, targets.py, special_registers.py   element types; targets, versions, devices; predefined registers
row.py, effects.py   the content of a row: slots, operands, requirements, rule, status; the effects besides computing
form.py              a row with filled slots: one instruction of a program
pieces.py, shapes.py the parts of rows; those of matrix instructions
table.py, matrix.py  all rows; the rows of matrix instructions alone
match.py, fit.py, wrong.py   from a mnemonic to its form; the rows that accept it; the reasons why none does
names/               names of matrix instructions as people write them
"""
