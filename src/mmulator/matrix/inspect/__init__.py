"""Answers, as data, to questions about matrix instructions.

Plain frozen dataclasses with `to_dict()` (what `--json` prints) and, for notebooks, `_repr_html_` or `_repr_svg_`.
The command line prints the same answers. Names are imported on first use.
"""
