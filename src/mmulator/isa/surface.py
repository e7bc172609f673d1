"""Surface Instructions (PTX ISA 9.1). Not modelled."""

from mmulator.isa.pieces import later
from mmulator.isa.row import Row

_LATER = "textures and surfaces are not modelled"

ROWS: tuple[Row, ...] = (*later("suld sust sured suq", _LATER, "Surface Instructions"),)
