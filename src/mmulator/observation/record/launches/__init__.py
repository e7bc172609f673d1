"""Launches of a program, and what is asked about them: an inquiry (host/driver/inquiries.py) in a file each."""
