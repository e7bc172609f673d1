"""Shadow memory: who accessed each byte last, and which two accesses are a race."""
