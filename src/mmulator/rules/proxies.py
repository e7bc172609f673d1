"""What the generic and the asynchronous proxy must tell each other. Numbers from 200 on."""

from __future__ import annotations

from mmulator.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
