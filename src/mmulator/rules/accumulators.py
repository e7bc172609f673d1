"""Registers of wgmma in flight. Numbers from 100 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
