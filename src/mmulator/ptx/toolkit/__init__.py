"""CUDA's toolkit: the files that it makes, with the PTX in them; nvcc itself."""
