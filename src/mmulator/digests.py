"""Digests: names of stored code made of what the code depends on, and checks that a stored file is whole.

BLAKE2 of 32 bytes, which Python brings. OpenSSL's functions will not do: exit() takes OpenSSL down while other threads of a
program of C++ still launch kernels.
"""

from _blake2 import blake2b
from functools import partial

digest_of = partial(blake2b, digest_size=32)
"""The digest of some bytes, an object as those of hashlib."""
