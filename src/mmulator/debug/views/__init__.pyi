from mmulator.debug.views.barrier_state import (
    Barriers as Barriers,
    MbarrierView as MbarrierView,
    NamedBarrier as NamedBarrier,
    barriers as barriers,
)
from mmulator.debug.views.in_flight import InFlight as InFlight, Flights as Flights, flights as flights
from mmulator.debug.views.instruction_matrices import matrices as matrices, operand as operand
from mmulator.debug.views.matrix import MatrixView as MatrixView
from mmulator.debug.views.register_table import (
    RegisterTable as RegisterTable,
    RegisterView as RegisterView,
    registers as registers,
)
from mmulator.debug.views.scene import Scene as Scene
from mmulator.debug.views.tensor_cells import allocations as allocations, tensor_memory as tensor_memory
from mmulator.debug.views.tiles import (
    by_descriptor as by_descriptor,
    by_layout as by_layout,
    by_shape as by_shape,
    by_tensor_map as by_tensor_map,
)
from mmulator.debug.views.wait_graph import LaneWait as LaneWait, Waits as Waits, Waker as Waker, waits as waits
from mmulator.debug.views.barrier_state import WarpTable as WarpTable, WarpsAt as WarpsAt, warps as warps
