"""Threads that wait for ever. Numbers from 800 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
