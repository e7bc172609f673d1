"""Judges: programs with known defects that others wrote, run with the sanitizer, and how many of the defects are found.

Each runner is one file, takes the folder of a corpus that whoever runs it has fetched, and ends with exit code 0 only if what
it expects holds: docs/reference/judges.md.
"""
