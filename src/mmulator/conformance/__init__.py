"""The model against real GPUs: cases from seeds, kernels that run them, comparison, vectors with provenance, reports."""
