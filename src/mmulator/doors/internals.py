"""Internal names of other people's libraries: what each is for, and what a program loses where a version lacks one.

A name that is in no table here no file of a door uses. In place of one that is lacking a function is put that raises
UnsupportedError, so that importing the library goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from mmulator.base.errors import UnsupportedError
from mmulator.base.versions import TABLE, warn

_MISSING = object()

# what each name is for: of Triton
LAUNCHES = "launches"
TRITON = {
    "triton.runtime.jit.create_function_from_signature": "arrays as arguments",
    "triton.runtime.jit.JITFunction": LAUNCHES,
    "triton.runtime.cache.get_cache_manager": LAUNCHES,
    "triton.compiler.compiler.ASTSource": LAUNCHES,
    "triton.runtime.autotuner.Autotuner": "autotuning",
    "triton.testing.do_bench": "benchmarks",
    "triton.runtime._allocation._allocator": "scratch memory of a kernel",
    "triton.runtime._allocation._profile_allocator": "scratch memory of a profile",
    "triton._utils.find_paths_if": "mm.triton.compile and launch",
    "triton._utils.get_iterable_path": "mm.triton.compile and launch",
}
# of torch
DEVICE = "the device cuda"
TORCH = {
    # the dispatcher
    "torch._C.DispatchKey": DEVICE,
    "torch._C.DispatchKeySet": DEVICE,
    "torch._C.DisableTorchFunction": DEVICE,
    "torch._C._dispatch_has_kernel_for_dispatch_key": DEVICE,
    "torch._C._dispatch_has_computed_kernel_for_dispatch_key": DEVICE,
    "torch._C._dispatch_get_registrations_for_dispatch_key": DEVICE,
    "torch._C._dispatch_has_kernel": DEVICE,
    "torch._C._should_allow_numbers_as_tensors": DEVICE,
    "torch._C._len_torch_function_stack": DEVICE,
    "torch._C._current_graph_task_id": DEVICE,
    "torch._ops.OpOverload": DEVICE,
    # tensors and their memory
    "torch._C.TensorBase": DEVICE,
    "torch._C.StorageBase": DEVICE,
    "torch._C._dispatch_keys": DEVICE,
    "torch._C._to_dlpack": DEVICE,
    "torch._C._from_dlpack": DEVICE,
    "torch._C._storage_Use_Count": DEVICE,
    "torch._C._set_conj": "conjugated tensors",
    "torch._C._set_neg": "negated views",
    "torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors": "sparse tensors",
    # attention
    "torch.ops.aten._scaled_dot_product_flash_attention": "attention by name",
    "torch.ops.aten._scaled_dot_product_efficient_attention": "attention by name",
    "torch.ops.aten._scaled_dot_product_cudnn_attention": "attention by name",
    # torch.compile
    "torch._C._dynamo.guards": "torch.compile",
}
# Those that some versions lack, and that are asked for by name.
TORCH_OPTIONAL = {
    "torch._C._ensureCUDADeviceGuardSet": "a guard that newer versions put in place when asked",
    "torch._C._cuda_init": "whether the door is open",
    "torch._C._cuda_getDeviceCount": "whether a build for CUDA has a GPU",
    "torch._C._cuda_getCurrentRawStream": "the stream of a launch of Triton",
    "torch._C._dynamo.guards._empty_strided_cuda": "new tensors in code of torch.compile",
    "torch._C._cudart": "given: the runtime",
    "torch.cuda._get_device_properties": "given: the properties of the device",
    "torch.cuda._device_count_nvml": "given: NVIDIA's library is not asked",
    "torch.cuda._utils": "torch.cuda._compile_kernel, by its functions that load NVRTC",
    "torch.UntypedStorage._share_cuda_": "given: an error that names CUDA's IPC",
    "torch.UntypedStorage._new_shared_cuda": "given: an error that names CUDA's IPC",
    "torch._C._conv_determine_backend_memory_format": "given: the order of memory of a convolution's result",
    "torch._prims_common": "the order of memory of a tensor, as torch.compile sees it",
    "torch._scaled_mm": "products of FP8 with scales, which are compared with a GPU",
    "torch.ops.aten._scaled_mm_v2": "F.scaled_mm, in newer versions",
    "torch._C._distributed_c10d": "given: the class ProcessGroupNCCL; a logger of DistributedDataParallel without a timer",
    "torch.distributed.distributed_c10d._world": "which back end a process group has",
    "torch._inductor": "torch.compile: modes, settings, measurements",
    "torch._dynamo.trace_rules": "torch.compile: mmulator itself is not compiled",
}
# Attributes of torch's objects.
TORCH_ATTRIBUTES = {
    "_cdata": "address of the C++ object of a tensor, a storage, a generator",
    "_handle": "an operator in C++, whose redispatch_boxed runs its kernel",
    "_schema": "arguments and results of an operator",
    "_opname": "an operator's name without its overload",
    "_op": "an operator in Python",
    "_overloadpacket": "all overloads of an operator",
    "_prepare_ldflags": "flags of the linker for load_inline",
    "_get_gpu_rtc_library": "NVRTC as torch loads it",
    "_register_backend": "a process group's back end",
    "_get_backend": "a process group's back end",
    "_type": "the type of a value in TorchScript",
    "_indices": "the indices of a sparse tensor",
    "_scaled_dot_product_attention_math": "attention as plain arithmetic",
}


def found(name: str) -> Any:
    """The object that a dotted name stands for, importing modules on the way; `_MISSING` where it is nothing."""
    head, *rest = name.split(".")
    at: Any = sys.modules.get(head) or import_module(head)
    for n, part in enumerate(rest):
        value: Any = getattr(at, part, _MISSING)
        if value is _MISSING:
            try:
                value = import_module(".".join([head, *rest[: n + 1]]))
            except ImportError:
                return _MISSING
        at = value
    return at


def lacking(names: Mapping[str, str]) -> dict[str, str]:
    """Names of a table that this version of the library lacks, with what each is for."""
    return {name: purpose for name, purpose in names.items() if found(name) is _MISSING}


def stand_in(package: str, names: Mapping[str, str], needed: str) -> None:
    """Put functions that raise in place of names that are lacking, and warn of all that is lost, once.

    package: of the library, in the table of versions.
    names: what each is for.
    needed: what is for nothing less than the door: a lacking name for it raises UnsupportedError at once.
    """
    row, lost = TABLE[package], lacking(names)
    library = f"{row.name} {getattr(sys.modules.get(row.module), '__version__', '')}"
    for name, purpose in lost.items():
        refused = _refused(f"{library} has no {name}, which mmulator needs for {purpose}", package)
        if purpose == needed:
            refused()
        parent, _, leaf = name.rpartition(".")
        if (holder := found(parent)) is not _MISSING:
            setattr(holder, leaf, refused)
    if lost:
        said = f"{library} lacks {len(lost)} internal names that mmulator uses; what needs them raises: "
        warn(said + ", ".join(sorted({*lost.values()})))


def _refused(message: str, package: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedError(message, hint=TABLE[package].mend)

    return refused
