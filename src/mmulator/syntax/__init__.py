"""Instruction text <-> form: parse, print, and say what is illegal and why."""

from mmulator.syntax.mnemonic import MATRIX_OPCODES, parse_mnemonic, print_mnemonic
from mmulator.syntax.named import parse_instruction

__all__ = ["MATRIX_OPCODES", "parse_instruction", "parse_mnemonic", "print_mnemonic"]
