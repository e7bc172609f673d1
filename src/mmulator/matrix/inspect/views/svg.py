"""Drawings as SVG text: a canvas, the colours of lanes in a light and a dark theme, text that fits, PNG.

Sizes are in px of 1/96 inch. Colours are classes, so that one drawing serves both themes; every rule of its style sheet is
confined to the drawing, since a notebook puts many of them in one page.
"""

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from mmulator.base.errors import OperandError, UnsupportedError, installs

THEMES = ("auto", "light", "dark")
# Size of a landscape page, A4 or letter, inside margins of 10 mm.
PAGE_WIDTH, PAGE_HEIGHT = 979, 718

# Four tints for each of eight hues: lanes 4g to 4g + 3 share a hue. Equal steps of lightness in OKLCH.
LANES_LIGHT = (
    ("#e4f0fe", "#c6dfff", "#a8cefe", "#8bbcfb"),
    ("#f6efd5", "#e9ddb0", "#dccb8a", "#ceb867"),
    ("#ffe8e9", "#fecfd1", "#fdb4b9", "#f49da3"),
    ("#daf6e9", "#b8ead3", "#95ddbd", "#73cea8"),
    ("#f1ebfe", "#e2d4ff", "#d3befa", "#c3aaf3"),
    ("#ffeadd", "#fdd3b7", "#f7bc95", "#eda776"),
    ("#d4f6fa", "#aee9ef", "#84dbe5", "#59ccd9"),
    ("#ffe7f3", "#fbcde5", "#f4b5d7", "#ea9ec8"),
)
LANES_DARK = (
    ("#192a3f", "#223956", "#2a496f", "#345885"),
    ("#30290c", "#42370d", "#54470d", "#665612"),
    ("#3c1f22", "#532a2e", "#6a353a", "#7f4147"),
    ("#0f3023", "#124230", "#13543d", "#19654b"),
    ("#2c243c", "#3d3052", "#4e3e6a", "#5e4b7f"),
    ("#3a2312", "#502f17", "#663c1c", "#7a4924"),
    ("#042f33", "#004046", "#005259", "#03636b"),
    ("#391f2e", "#4e2b3f", "#643651", "#784261"),
)
# class -> (property, light, dark). bg: the page; cell: a cell without a lane; ink, dim: text; grid, rule, mark: lines.
COLOURS: dict[str, tuple[str, str, str]] = {
    "bg": ("fill", "#ffffff", "#12161b"),
    "cell": ("fill", "#f3f4f6", "#20262d"),
    "ink": ("fill", "#14181d", "#f2f5f8"),
    "dim": ("fill", "#4b545e", "#b3bdc7"),
    "grid": ("stroke", "#8b949e", "#59636e"),
    "rule": ("stroke", "#2f363d", "#c9d1d9"),
    "mark": ("stroke", "#b3123f", "#ff8fa8"),
    **{
        f"l{lane}": ("fill", LANES_LIGHT[lane // 4][lane % 4], LANES_DARK[lane // 4][lane % 4]) for lane in range(32)
    },
}
_MONO = 'ui-monospace,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'
_SANS = 'system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans","Liberation Sans",sans-serif'
# Widths of a character in em, wide enough for the widest of the fonts above.
_MONO_EM, _SANS_EM, _BOLD_EM = 0.605, 0.59, 0.66
_SMALLEST = 6.0
FONT_PACKAGE = "font_source_sans_pro"  # what PNG falls back to on a machine without fonts
_FALLBACK = "Source Sans Pro"


def lane_class(lane: int) -> str:
    """The class of a lane's colour. Lanes of a warpgroup's other warps take the colours of the first."""
    return f"l{lane % 32}"


def check_theme(theme: str) -> str:
    """The theme itself. Raises OperandError for an unknown one."""
    if theme not in THEMES:
        raise OperandError(f"no theme {theme!r}", hint=f"themes: {', '.join(THEMES)}")
    return theme


def text_width(text: str, size: float, mono: bool = True, bold: bool = False) -> float:
    """Width of a text in px, in the widest of the fonts that a reader may have."""
    return len(text) * size * (_MONO_EM if mono else _BOLD_EM if bold else _SANS_EM)


def fit(text: str, width: float, size: float, mono: bool = True, bold: bool = False) -> float | None:
    """The largest font size up to `size` at which the text fits into `width`; None if it would be too small to read."""
    need = text_width(text, size, mono, bold)
    if need <= width:
        return size
    smaller = int(10 * size * width / need) / 10
    return smaller if smaller >= _SMALLEST else None


def wrap(text: str, width: float, size: float, mono: bool = False) -> list[str]:
    """A text in lines that fit into `width`; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size, mono) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass
class Canvas:
    """A drawing in the making; `svg()` is its text.

    width, height: px.
    title: read out by screen readers, shown when hovering.
    theme: `auto` follows the reader's (`prefers-color-scheme`; paper is always light), `light` and `dark` do not.

    Parameter cls of every shape: names of COLOURS.
    """

    width: float
    height: float
    title: str
    theme: str = "auto"
    _parts: list[str] = field(default_factory=list, repr=False)
    _used: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        check_theme(self.theme)
        self.rect(0, 0, self.width, self.height, "bg")

    def _class(self, cls: str) -> str:
        self._used |= set(cls.split())
        return cls

    def rect(self, x: float, y: float, width: float, height: float, cls: str, tip: str = "") -> None:
        """A rectangle. tip: text that shows when hovering."""
        inside = f"<title>{escape(tip)}</title></rect>" if tip else ""
        self._parts.append(
            f'<rect class="{self._class(cls)}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" '
            f'height="{_number(height)}"' + (f">{inside}" if tip else "/>")
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str = "grid", width: float = 1) -> None:
        thick = "" if width == 1 else f' stroke-width="{_number(width)}"'
        self._parts.append(
            f'<path class="{self._class(cls)}" d="M{_number(x1)} {_number(y1)}L{_number(x2)} {_number(y2)}"{thick}/>'
        )

    def frame(self, x: float, y: float, width: float, height: float, cls: str = "rule", line: float = 1) -> None:
        """The outline of a rectangle."""
        thick = "" if line == 1 else f' stroke-width="{_number(line)}"'
        box = f"M{_number(x)} {_number(y)}h{_number(width)}v{_number(height)}h{_number(-width)}z"
        self._parts.append(f'<path class="{self._class(cls)}" d="{box}"{thick}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 11,
        cls: str = "ink",
        *,
        anchor: str = "start",
        mono: bool = True,
        bold: bool = False,
        width: float | None = None,
    ) -> None:
        """Draw a line of text with its baseline at y. Raises OperandError where it would be too small to read, so that the
        caller shortens it.

        anchor: `start`, `middle` or `end`, as in SVG.
        width: room for the text in px; the font shrinks to fit.
        """
        if width is not None:
            found = fit(text, width, size, mono, bold)
            if found is None:
                raise OperandError(f"{text!r} does not fit into {width:g} px")
            size = found
        name = self._class(f"{cls} {'m' if mono else 's'}{'' if anchor == 'start' else f' {anchor}'}")
        heavy = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text class="{name}" x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}"{heavy}>'
            f"{escape(text, quote=False)}</text>"
        )

    def centred(
        self, x: float, y: float, width: float, height: float, text: str, size: float = 11, cls: str = "ink", bold: bool = False
    ) -> None:
        """A label in the middle of a cell."""
        room = width - 3
        found = fit(text, room, size, bold=bold)
        baseline = y + height / 2 + 0.35 * (found or size)
        self.text(x + width / 2, baseline, text, size, cls, anchor="middle", bold=bold, width=room)

    def svg(self) -> str:
        """The drawing as an SVG document, which HTML can hold inline as well."""
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        scope = f"mm-{self.theme}"
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" {size} '
            f'viewBox="0 0 {_number(self.width)} {_number(self.height)}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{self._style(scope)}</style>\n"
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )

    def _style(self, scope: str) -> str:
        dark = self.theme == "dark"
        rules = [_rule(scope, name, dark) for name in COLOURS if name in self._used]
        rules += [f".{scope} .{name}{{{text}}}" for name, text in _SHAPES.items() if name in self._used]
        rules.append(f".{scope} path{{fill:none}}")
        if self.theme == "auto":  # paper is light
            inner = "".join(_rule(scope, name, True) for name in COLOURS if name in self._used)
            rules.append(f"@media screen and (prefers-color-scheme:dark){{{inner}}}")
        return "".join(rules)


_SHAPES = {
    "m": f"font-family:{_MONO}",
    "s": f"font-family:{_SANS}",
    "middle": "text-anchor:middle",
    "end": "text-anchor:end",
}


def _rule(scope: str, name: str, dark: bool) -> str:
    what, *colours = COLOURS[name]
    return f".{scope} .{name}{{{what}:{colours[dark]}}}"


def to_png(svg: str, scale: float = 2) -> bytes:
    """A drawing as PNG, `scale` pixels a px; one of theme `auto` comes out light.

    Raises UnsupportedError without the packages of the extra `draw`.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError:
        raise UnsupportedError("PNG needs a package that is not installed", hint=f"{installs('draw')}, or write SVG") from None
    drawn: bytes = svg_to_bytes(
        svg_string=svg,
        zoom=scale,
        font_dirs=_fallback_fonts(),
        monospace_family=_FALLBACK,
        sans_serif_family=_FALLBACK,
    )
    return bytes(drawn)


def _fallback_fonts() -> list[str]:
    from importlib.util import find_spec

    found = find_spec(FONT_PACKAGE)
    places = found.submodule_search_locations if found else None
    return [str(Path(p) / "files") for p in places or ()]
