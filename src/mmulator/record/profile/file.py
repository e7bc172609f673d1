"""Profiles as the text of a file, whose ending says how: .json, .html, .info for lcov, .txt."""

import json
from collections.abc import Callable, Sequence
from pathlib import PurePath

from mmulator.record.profile.data import ProfileData, lcov
from mmulator.schemas import document


def _json(profiles: Sequence[ProfileData]) -> str:
    return json.dumps(document("profiles", {"profiles": [p.as_dict() for p in profiles]}), indent=1) + "\n"


def _html(profiles: Sequence[ProfileData]) -> str:
    from mmulator.record.profile.page import page

    return page(profiles)


def _text(profiles: Sequence[ProfileData]) -> str:
    from mmulator.record.profile.text import annotated, table

    return "\n\n".join(f"{table(p, len(p.instructions))}\n\n{annotated(p)}" for p in profiles) + "\n"


FORMATS: dict[str, Callable[[Sequence[ProfileData]], str]] = {".json": _json, ".html": _html, ".info": lcov, ".txt": _text}


def written(profiles: Sequence[ProfileData], file: str) -> str:
    """The contents of a file of that name."""
    return FORMATS[PurePath(file).suffix](profiles)
