"""mmulator: NVIDIA tensor-core kernels without the GPU, bit for bit."""

from mmulator.base.lazy import face

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = face(__name__)  # so that `import mmulator` costs next to nothing
__all__ += ["__version__"]
