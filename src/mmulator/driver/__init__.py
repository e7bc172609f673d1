"""The driver: device memory, modules, functions, streams and launches, as CUDA's driver has them, on this machine.

Other people's programs come in through doors (Triton, torch, Numba, CuPy, cuda.core), and all doors lead here. Device
memory is memory of the host at the host's own addresses, so that a pointer that a program has taken, stored or computed
means the same to a kernel. A kernel may touch what the door says it was given, and what the program has the address of.
"""

from __future__ import annotations

from mmulator.driver.driver import Driver as Driver
from mmulator.driver.driver import current as current
from mmulator.driver.driver import use as use
from mmulator.driver.functions import Function as Function
from mmulator.driver.functions import LoadedModule as LoadedModule
from mmulator.driver.memory import Allocation as Allocation
from mmulator.driver.memory import Memory as Memory
from mmulator.driver.settings import Settings as Settings
from mmulator.driver.streams import Event as Event
from mmulator.driver.streams import Stream as Stream
from mmulator.machine.launch.arguments import Region as Region
