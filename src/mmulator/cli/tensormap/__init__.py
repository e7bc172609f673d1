"""`mmulator tensormap`: tensor maps, in four commands, a file each."""

from mmulator.cli.parser import Group
from mmulator.cli.tensormap.check import check
from mmulator.cli.tensormap.decode import decode
from mmulator.cli.tensormap.draw import draw
from mmulator.cli.tensormap.encode import encode

tensormap = Group(
    "Encode, decode, check and draw tensor maps: the 128 bytes, and where each element of a box lands.",
    {"encode": encode, "decode": decode, "draw": draw, "check": check},
)
