"""The model compared with real GPUs: cases from seeds, kernels that run them, comparison, recorded vectors, reports."""
