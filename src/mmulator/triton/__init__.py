"""Triton's kernels on this machine: `triton.backends` finds the plug-in here, as modules `compiler` and `driver`."""
