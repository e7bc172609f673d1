"""Small programs that call kernels of public projects, run without a GPU, under the sanitizer, and beside a GPU."""
