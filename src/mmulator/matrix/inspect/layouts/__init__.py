"""Which lane and register holds which element of an operand."""
