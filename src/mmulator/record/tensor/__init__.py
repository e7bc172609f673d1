"""Tensor memory of a trail: what its pipe carried out, which write a cell has its bits from, and operands of products."""
