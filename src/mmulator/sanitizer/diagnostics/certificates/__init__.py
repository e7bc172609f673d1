"""Certificates on the side of the sanitizer: the evidence of a run, in words."""
