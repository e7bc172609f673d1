"""A launch: arguments, limits, memory, the grid, and the workers that run it. It says nothing in words."""
