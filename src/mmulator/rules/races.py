"""Accesses to memory that nothing orders. Numbers from 300 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
