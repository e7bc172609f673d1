"""Operands that must be alike, or have one of few values. Numbers from 500 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
