"""Comparison and verdicts: the model beside real GPUs, and programs of others that run within limits.

`conformance/` compares with GPUs, `judging/` gives one verdict on a kernel, `spread/` runs a launch on other machines.
"""
