"""cuda.core's programs on this machine: `install()` before they use a device, or `mmulator exec`."""

from mmulator.doors.cuda_core.install import install as install
