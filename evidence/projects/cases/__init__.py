"""The programs: one function a case, by what the kernels compute."""
