"""Options for docs/reference/commands.md: as they are written, and where each setting is taken."""

from __future__ import annotations

from mmulator.host import settings
from tools.pages.tables import table

_SHOWN = ("run", "exec", "debug", "judge", "check", "conformance", "pytest", "variable", "launch")


def written(row: settings.Setting) -> str:
    """An option or an argument, as a user writes it."""
    return f"`{' '.join((', '.join(row.names), row.metavar)).strip()}`"


def settings_by_door() -> str:
    """A row for each setting that more than one door takes, with the name that it has there."""
    rows = []
    for row in settings.TABLE:
        doors = row.doors.split()
        if len(doors) > 1:
            names = {door: row.at(door).names[-1] for door in doors}
            names |= {"variable": f"{settings.PREFIX}{row.name.upper()}", "launch": f"{row.at('launch').word}="}
            rows.append([f"`{row.word or row.name}`", *(f"`{names[door]}`" if door in doors else "" for door in _SHOWN)])
    return table(("setting", *_SHOWN), rows)
