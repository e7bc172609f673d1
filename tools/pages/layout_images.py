"""Draws the pictures of docs/explanation/layouts.md: python -m tools.pages.layout_images"""

from __future__ import annotations

from pathlib import Path

from mmulator.inspect import layout

FOLDER = Path(__file__).parents[2] / "docs" / "images"


def images() -> dict[str, str]:
    """File name and SVG text."""
    return {
        "layout-a.svg": layout("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "a").svg(),
        "layout-metadata.svg": layout("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "e", selector=1).svg(),
        "layout-accumulator.svg": layout("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "d").svg(),
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in images().items():
        (FOLDER / name).write_text(text)
        print(FOLDER / name, len(text))
