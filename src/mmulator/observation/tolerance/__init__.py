"""How far a launch's results may be from exact ones."""
