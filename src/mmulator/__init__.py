"""mmulator: NVIDIA tensor-core kernels without the GPU, bit for bit."""

__version__ = "0.1.0"
