"""The sanitizer's native code: the functions that the hooks of a sanitized kernel call (runtime/native/hooks/events.py), with a
file for each topic of base/rules/.
"""
