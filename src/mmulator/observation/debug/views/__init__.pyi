from mmulator.observation.debug.views.barrier_state import (
    Barriers as Barriers,
    MbarrierView as MbarrierView,
    NamedBarrier as NamedBarrier,
    barriers as barriers,
)
from mmulator.observation.debug.views.in_flight import InFlight as InFlight, Flights as Flights, flights as flights
from mmulator.observation.debug.views.instruction_matrices import matrices as matrices, operand as operand
from mmulator.observation.debug.views.matrix import MatrixView as MatrixView
from mmulator.observation.debug.views.register_table import (
    RegisterTable as RegisterTable,
    RegisterView as RegisterView,
    registers as registers,
)
from mmulator.observation.debug.views.scene import Scene as Scene
from mmulator.observation.debug.views.tensor_cells import allocations as allocations, tensor_memory as tensor_memory
from mmulator.observation.debug.views.tiles import (
    by_descriptor as by_descriptor,
    by_layout as by_layout,
    by_shape as by_shape,
    by_tensor_map as by_tensor_map,
)
from mmulator.observation.debug.views.wait_graph import LaneWait as LaneWait, Waits as Waits, Waker as Waker, waits as waits
from mmulator.observation.debug.views.barrier_state import WarpTable as WarpTable, WarpsAt as WarpsAt, warps as warps
