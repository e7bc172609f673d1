"""Launches in clusters on a GPU: what the driver is asked for, with the model's machine in the GPU's place."""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmulator.evaluation.conformance.gpu import Gpu
from mmulator.evaluation.conformance.kernels import run_kernel
from mmulator.host.cpu import Cpu
from mmulator.host.module import Module
from tests.conformance.test_conformance import DEVICE, Driver

KERNEL = """.version 9.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out) {directives}
{{
 .reg .b32 r<4>; .reg .b64 p;
 ld.param.u64 p, [out]; mov.u32 r0, %ctaid.x; mad.wide.u32 p, r0, 8, p; mov.u32 r1, %cluster_nctarank; mov.u32 r2, %nctaid.x;
 st.global.v2.b32 [p], {{r1, r2}};
 ret;
}}
"""


class Attribute:
    def __init__(self) -> None:
        self.id, self.value = 0, SimpleNamespace(clusterDim=SimpleNamespace(x=0, y=0, z=0), cooperative=0)


class Clustered(Driver):
    """A driver with cuLaunchKernelEx. asked: attributes of the functions, and of the launches."""

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4)
    CUlaunchAttribute, CUlaunchConfig = Attribute, SimpleNamespace
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=14
    )

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> Any:
        self.asked.append((attribute, value))
        return (self.CUresult.CUDA_SUCCESS,)

    def cuLaunchKernelEx(self, config: Any, function: Any, table: int, extra: int) -> Any:
        assert config.numAttrs == len(config.attrs) and config.hStream == 0
        found = {a.id: a.value for a in config.attrs}
        dims = found.get(4)
        cluster = (dims.clusterDim.x, dims.clusterDim.y, dims.clusterDim.z) if dims else None
        self.asked.append((cluster, bool(found.get(2) and found[2].cooperative)))
        params = function.function.params
        values = [self._argument(p, at) for p, at in zip(params, (ctypes.c_void_p * len(params)).from_address(table))]
        function.launch(
            [config.gridDimX, config.gridDimY, config.gridDimZ], [config.blockDimX, config.blockDimY, config.blockDimZ], values,
            config.sharedMemBytes, device=DEVICE, cluster=cluster,
        )  # fmt: skip
        self.status = [self.CUresult.CUDA_ERROR_NOT_READY, *self.status[-1:]]
        return (self.CUresult.CUDA_SUCCESS,)


CASES: list[tuple[str, int, Any, bool, list[Any], int]] = [
    ("", 4, None, False, [], 1), ("", 4, 2, False, [((2, 1, 1), False)], 2), ("", 4, 1, True, [((1, 1, 1), True)], 1),
    ("", 4, None, True, [(None, True)], 1), ("", 16, 16, False, [(14, 1), ((16, 1, 1), False)], 16),
    (".reqnctapercluster 2", 4, None, False, [((2, 1, 1), False)], 2),
    (".reqntid 32 .reqnctapercluster 2 .blocksareclusters", 2, None, False, [((2, 1, 1), False)], 2),
]  # fmt: skip


@pytest.mark.parametrize(("directives", "grid", "cluster", "cooperative", "asked", "size"), CASES)
def test_a_gpu_is_asked_for_the_cluster_of_the_launch(
    directives: str, grid: int, cluster: Any, cooperative: bool, asked: list[Any], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Clustered()
    monkeypatch.setattr("mmulator.evaluation.conformance.gpu._bindings", lambda: driver)
    text = KERNEL.format(directives=directives)
    blocks = grid * (2 if "blocksare" in directives else 1)
    for backend in (Gpu(), Cpu()):
        out = np.zeros((blocks, 2), np.uint32)
        launch = Module.load(text)["k"].prepared(grid, 32, [out], 0, DEVICE, cluster, cooperative)
        run_kernel(backend, backend.load(text), "k", launch.shape, launch.arguments)
        assert out.tolist() == [[size, blocks]] * blocks
    assert driver.asked == asked
