"""Every chapter of instructions: its recorded vectors replayed, each of its rows written or refused by name.

Chapters of which no more is to be tested have no file of their own: control, fence, grid, misc, tcgen05, and video, where a GPU
saturates otherwise than the specification says; memory of several GPUs, surfaces and textures are refused, row for row.
"""

import pytest

from tests.support import rows, vectors

COMPUTING = ("compare", "convert", "float", "half", "integer", "logic", "move")  # chapters whose instructions only compute
COSTLY = {*COMPUTING} - {"logic", "move"}  # chapters with many vectors
VECTORS = [
    pytest.param(one, id=f"{chapter}-{name}", marks=pytest.mark.full if chapter in COSTLY else ())
    for chapter in vectors.NAMES for name, one in vectors.of_chapter(chapter)
]  # fmt: skip
ROWS = [
    pytest.param(chapter, opcode, marks=pytest.mark.full if chapter == "tcgen05" else ())
    for chapter in vectors.NAMES for opcode in rows.opcodes(chapter)
]  # fmt: skip


@pytest.mark.parametrize("wrong", VECTORS)
def test_vectors(wrong: vectors.Replay) -> None:
    """The bits are those of the GPU."""
    found = [*wrong()]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("chapter", "opcode"), ROWS)
def test_rows(chapter: str, opcode: str) -> None:
    """`check` and a launch agree: what it lets through is written to the end, what it names is raised, for the row's reason."""
    rows.run_or_refuse(chapter, opcode)


@pytest.mark.parametrize(("chapter", "name"), [(chapter, name) for chapter in COMPUTING for name in rows.lanewise(chapter)])
def test_forms(chapter: str, name: str) -> None:
    rows.write_forms(chapter, name)
