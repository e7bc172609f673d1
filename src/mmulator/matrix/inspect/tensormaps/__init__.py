"""Tensor maps: fields, what is wrong with them, where each element of a box lands, whether a copy fits."""
