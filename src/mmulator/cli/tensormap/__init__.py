"""`mmulator tensormap`: tensor maps, in four commands, a file each."""

from __future__ import annotations

import typer

from mmulator.cli.tensormap.check import check
from mmulator.cli.tensormap.decode import decode
from mmulator.cli.tensormap.draw import draw
from mmulator.cli.tensormap.encode import encode

tensormap = typer.Typer(no_args_is_help=True)


@tensormap.callback()
def _about() -> None:
    """Encode, decode, check and draw tensor maps: the 128 bytes, and where each element of a box lands."""


tensormap.command()(encode)
tensormap.command()(decode)
tensormap.command()(draw)
tensormap.command()(check)
