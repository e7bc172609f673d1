"""PTX module text -> typed tree -> verified."""

from mmulator.ptx.parser import parse_module

__all__ = ["parse_module"]
