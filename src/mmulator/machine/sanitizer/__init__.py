"""The sanitizer's native code: what the hooks of a sanitized kernel call (runtime/events.py), a file a topic of rules/."""
