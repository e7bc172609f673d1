"""Random choices that the seed decides."""

from typing import Any


def hash_choice(seed: Any, a: Any, b: Any) -> Any:
    """Macro: a well-mixed number from three; the machine's only source of chance."""
    x = seed * 0x9E3779B97F4A7C15 + a * 0xBF58476D1CE4E5B9 + b * 0x94D049BB133111EB + 0x2545F4914F6CDD1D
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)
