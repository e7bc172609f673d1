"""Instruction text <-> form: parse, print, and say what is illegal and why."""

from mmulator.syntax.mnemonic import parse_mnemonic
from mmulator.syntax.named import parse_instruction

__all__ = ["parse_instruction", "parse_mnemonic"]
