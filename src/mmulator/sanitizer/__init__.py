"""The sanitizer's native code: the functions that the hooks of a sanitized kernel call (native/hooks/events.py), with a file
for each topic of rules/.
"""
