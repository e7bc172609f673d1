"""From the text of a PTX module to a typed tree, and its verification. Launches and commands use the tree.

text.py, lexer.py, cursor.py                         bytes to text, text to tokens, and a place in the tokens
parser.py, declarations.py, body.py                  tokens to tree.py's `ParsedModule`
verify.py      checks that every instruction exists and its operands fit: check.py (the list), operands.py (each one), fits.py
               (types of registers), fragments.py (operands of matrix instructions)
resources.py   the resources that a kernel needs
"""
