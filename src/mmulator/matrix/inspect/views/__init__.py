"""Answers as pictures, tables and HTML. Views know the answers; nothing but `matrix/inspect/answer.py` knows of views."""
