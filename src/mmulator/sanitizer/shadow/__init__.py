"""Shadow memory: the last accesses to each byte, and the detection of races between two accesses."""
