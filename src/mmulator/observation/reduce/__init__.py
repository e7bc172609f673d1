"""A failing launch made small: instructions, grid, arrays and values go as long as it fails in the same way."""
