"""Registers and bytes that nobody has written. Numbers from 700 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
