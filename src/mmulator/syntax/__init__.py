"""Instruction text <-> form: parse, print, and say what is illegal and why."""

from mmulator.syntax.mnemonic import MATRIX_OPCODES, parse_mnemonic, print_mnemonic

__all__ = ["MATRIX_OPCODES", "parse_mnemonic", "print_mnemonic"]
