"""The canvas of all drawings: colours that can be read, text that fits, both themes, PNG."""

import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from mmulator.errors import OperandError, UnsupportedError
from mmulator.matrix.inspect.views import svg
from mmulator.matrix.inspect.views.svg import COLOURS, Canvas, fit, lane_class, text_width, to_png, wrap


def luminance(colour: str) -> float:
    """Relative luminance of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [1, 2], ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(theme: int) -> None:
    ink, dim = COLOURS["ink"][theme], COLOURS["dim"][theme]
    lanes = [COLOURS[lane_class(lane)][theme] for lane in range(32)]
    for ground in (*lanes, COLOURS["bg"][theme], COLOURS["cell"][theme]):
        assert contrast(ink, ground) >= 4.5, ground
    for ground in (COLOURS["bg"][theme], COLOURS["cell"][theme]):
        assert contrast(dim, ground) >= 4.5
    assert len(set(lanes)) == 32
    assert lane_class(69) == lane_class(5)


def sample(theme: str) -> Canvas:
    canvas = Canvas(200, 100, "A < B & C", theme)
    canvas.rect(10, 10, 80, 30, "l3 grid", tip="row < 3")
    canvas.centred(10, 10, 80, 30, "T3:{a0,a1}")
    canvas.text(190, 90, "the end", 12, "dim", anchor="end", mono=False)
    canvas.line(0, 50, 200, 50)
    canvas.frame(5, 5, 190, 90, line=2)
    return canvas


def test_a_drawing_is_xml_and_its_style_stays_at_home() -> None:
    for theme in svg.THEMES:
        text = sample(theme).svg()
        root = ElementTree.fromstring(text)
        assert root.get("viewBox") == "0 0 200 100"
        assert "T3:{a0,a1}" in "".join(root.itertext())
        style = re.search(r"<style>(.*?)</style>", text)
        assert style is not None
        assert all(s.strip().startswith(f".mm-{theme} ") for s in re.findall(r"([^{}@]+)\{", style[1]) if "screen" not in s)
        assert ("@media screen and (prefers-color-scheme:dark)" in text) == (theme == "auto")
        used = {c for e in root.iter() for c in (e.get("class") or "").split() if not c.startswith("mm-")}
        assert used <= {*COLOURS, *svg._SHAPES}
        for name in used & set(COLOURS):
            assert f".mm-{theme} .{name}{{{COLOURS[name][0]}:{COLOURS[name][2 if theme == 'dark' else 1]}}}" in text
    with pytest.raises(OperandError, match="themes: auto, light, dark"):
        Canvas(1, 1, "", "sepia")


def test_text_shrinks_to_fit_but_stays_readable() -> None:
    assert fit("T0", 100, 11) == 11
    size = fit("T31:{a0,a1}", 50, 11)
    assert size is not None and 6 <= size < 11 and text_width("T31:{a0,a1}", size) <= 50
    assert fit("T31:{a0,a1}", 30, 11) is None
    with pytest.raises(OperandError, match="does not fit"):
        Canvas(10, 10, "").text(0, 5, "far too long", width=10)
    assert wrap("one two three", text_width("one two", 10, False), 10) == ["one two", "three"]


def pixels(png: bytes) -> set[bytes]:
    """Colours of an 8-bit RGBA PNG with no filter but those that the format has."""
    import struct
    import zlib

    at, data, width, height = 8, b"", 0, 0
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", png[at + 8 : at + 18])
            assert (depth, colour) == (8, 6)
        elif kind == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += 12 + size
    raw = zlib.decompress(data)
    rows = np.zeros((height, width * 4), np.int64)
    previous = np.zeros(width * 4, np.int64)
    for y in range(height):
        kind_, line = raw[y * (width * 4 + 1)], np.frombuffer(raw, np.uint8, width * 4, y * (width * 4 + 1) + 1).astype(int)
        out = np.zeros(width * 4, np.int64)
        for x in range(width * 4):
            a, b, c = (out[x - 4] if x >= 4 else 0), previous[x], (previous[x - 4] if x >= 4 else 0)
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            out[x] = (line[x] + (0, a, b, (a + b) // 2, paeth)[kind_]) & 255
        rows[y] = previous = out
    return {bytes(p.astype(np.uint8)) for p in rows.reshape(-1, 4)}


def test_png_has_the_colours_of_its_theme_and_text() -> None:
    for theme, column in (("light", 1), ("dark", 2), ("auto", 1)):
        seen = pixels(to_png(sample(theme).svg(), 1))
        for name in ("bg", "l3"):
            assert bytes.fromhex(COLOURS[name][column][1:] + "ff") in seen, (theme, name)
    blank = Canvas(200, 100, "")
    assert pixels(to_png(blank.svg(), 1)) == {bytes.fromhex("ffffffff")}
    blank.text(10, 50, "MMM", 40)
    assert bytes.fromhex(COLOURS["ink"][1][1:] + "ff") in pixels(to_png(blank.svg(), 1)), "no font was found"


def test_png_without_the_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(UnsupportedError, match=r"pip install '\.\[draw\]'"):
        to_png("<svg/>")
