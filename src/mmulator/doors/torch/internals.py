"""Internal names of torch that the door uses, each with what it is for (doors/internals.py)."""

from __future__ import annotations

DEVICE = "the device cuda"
NAMES = {
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
OPTIONAL = {
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
    "torch.ops.aten._scaled_mm_v2": "F.scaled_mm, in newer versions",
    "torch._C._distributed_c10d": "given: the class ProcessGroupNCCL; a logger of DistributedDataParallel without a timer",
    "torch.distributed.distributed_c10d._world": "which back end a process group has",
    "torch._inductor": "torch.compile: modes, settings, measurements",
    "torch._dynamo.trace_rules": "torch.compile: mmulator itself is not compiled",
}
# Attributes of torch's objects.
ATTRIBUTES = {
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
