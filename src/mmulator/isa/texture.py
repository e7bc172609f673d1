"""Texture Instructions, Surface Instructions (PTX ISA 9.1). Not modelled."""

from mmulator.isa.pieces import MOVES, later
from mmulator.isa.row import Row

LATER = "textures and surfaces are not modelled"

ROWS: tuple[Row, ...] = (
    *later("tex tld4 txq", LATER, "Texture Instructions"),
    *later("istypep", LATER, MOVES),
    *later("suld sust sured suq", LATER, "Surface Instructions"),
)
