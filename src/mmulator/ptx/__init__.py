"""PTX module text -> typed tree -> verified.

text.py, lexer.py, cursor.py                         bytes to text, to tokens, and a place in them
parser.py, declarations.py, body.py, selectors.py    tokens to tree.py's `Module`; debug.py: .loc and .file
verify.py      every instruction exists, and its operands fit: check.py (all of one), operands.py (one by one), fits.py (types of
               registers), fragments.py (of matrix instructions), calls.py
resources.py   what a kernel needs
"""
