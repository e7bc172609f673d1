"""Views of a stopped machine: pure functions from a `Scene` to frozen data with `as_dict()` and `text()`, 80 columns wide.

    scene = Scene.of(session.machine, session.focus, step)   # of a debugged launch, from the lane in focus
    scene = Scene(grid, place, lanes, site, step)            # between two steps, as `Steps` tells (observation/record/steps.py)

    registers(scene, "%r1* %f*", lanes, warp)   registers with types and lines, equal lanes folded; special registers
    matrices(scene), operand(scene, "A")         the matrices of the next mma, wgmma, tcgen05, matrix move or tensor copy
    by_descriptor(scene, "%rd4", 64, 16, "f16") shared memory through a matrix descriptor
    by_tensor_map(scene, map, (0, 64), "smem")  a box of a tensor in shared memory, or in global memory without an address
    by_layout(scene, "Sw<3,4,3> o ...", "smem") memory through a CuTe layout
    by_shape(scene, "smem+1024", (8, 16), "f32") memory as a plain array
    tensor_memory(scene, lanes, columns, "f32") tensor memory as lanes and columns; `allocations(scene)`
    barriers(scene)                             named barriers, mbarriers, the cluster's barrier
    flights(scene)                              asynchronous operations in flight, and the groups of each warp
    waits(scene)                                who waits for whom, and why a block does not go on
    warps(scene, cluster=True)                  where the warps are

Where no warp can go on (a deadlock), `Scene(grid, place)` with any warp of the cluster serves all but `matrices`. A stop that
nobody looks at costs nothing. All views read memory of the launch while it stands still; their data stay.
"""

from mmulator.base.lazy import face

__getattr__, __dir__, __all__ = face(__name__)
