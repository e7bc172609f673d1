"""A terminal that a command writes to, read to its end."""

import os


def read(descriptor: int) -> str:
    """Everything that a terminal was sent. The side that the command has is closed here already."""
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        data += piece
    os.close(descriptor)
    return data.decode()
