"""Answers as pictures, tables and HTML. Views know the answers; nothing but `inspect/answer.py` knows of views."""
