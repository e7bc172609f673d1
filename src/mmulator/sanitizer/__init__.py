"""The sanitizer's native code: what the hooks of a sanitized kernel call (native/hooks/events.py), a file a topic of rules/."""
