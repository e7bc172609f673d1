"""The projects whose kernels are called, with the version that was run, and verdicts on what the sanitizer finds in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Project:
    """Where a project is from.

    source: an address, or `PyPI: name`.
    version: a commit, or the version of a package.
    paths: folders of its modules, in the folder of the projects; a package of PyPI lies in `site` there.
    """

    source: str
    version: str
    paths: tuple[str, ...] = ()


def github(name: str, commit: str, *paths: str) -> Project:
    """A clone, in a folder that has the last part of its name."""
    folder = name.rpartition("/")[2]
    return Project(f"https://github.com/{name}", commit, tuple(f"{folder}/{path}" for path in paths) or (folder,))


def pypi(name: str, version: str, *paths: str) -> Project:
    return Project(f"PyPI: {name}", version, paths)


PROJECTS = {
    "accelerated-scan": pypi("accelerated-scan", "0.3.1"),
    "applied-ai": github("pytorch-labs/applied-ai", "4f8c39e", "kernels/triton/training/rms_norm",
                         "kernels/triton/training/fused_softmax", "kernels/triton/inference/fp8"),
    "flashinfer": github("flashinfer-ai/flashinfer", "fb28d724"),
    "lightllm": github("ModelTC/lightllm", "fc72ffab"),
    "autoawq": pypi("autoawq", "0.2.7.post3"),
    "conch-triton-kernels": pypi("conch-triton-kernels", "1.3"),
    "liger-kernel": pypi("liger-kernel", "0.8.5"),
    "moe-ops": pypi("moe-ops", "0.1.0"),
    "triton-muon-adamw": pypi("triton-muon-adamw", "1.0.0"),
    "torchnorm": pypi("torchnorm", "0.1.2"),
    "trifast": pypi("trifast", "0.1.13"),
    "lightning-attn": pypi("lightning-attn", "0.0.5"),
    "triton-sigmoid": pypi("triton-sigmoid", "0.1.2"),
    "ring-attention-pytorch": pypi("ring-attention-pytorch", "0.5.20"),
    "jvp-flash-attention": pypi("jvp-flash-attention", "0.14.0"),
    "late-interaction-kernels": pypi("late-interaction-kernels", "0.4.5"),
    "mlstm-kernels": pypi("mlstm-kernels", "2.0.6"),
    "flash-linear-attention": pypi("fla-core", "0.6.0"),
    "torch-fps": pypi("torch-fps", "0.6.0"),
    "flash-kmeans": pypi("flash-kmeans", "0.3.1"),
    "flashlib": pypi("flashlib", "0.4.0"),
    "fused-turboquant": pypi("fused-turboquant", "0.1.0"),
    "flash-sinkhorn": pypi("flash-sinkhorn", "0.4.1"),
    "adasplash": pypi("adasplash", "0.2.2"),
    "vllm": pypi("vllm", "0.33.0", "vllm"),
    "lmdeploy": pypi("lmdeploy", "0.18.0", "lmdeploy"),
    "mamba": github("state-spaces/mamba", "e9594ce"),
    "tritonbench": github("meta-pytorch/tritonbench", "db2155c"),
    "pytorch-inductor": pypi("torch", "2.13.0"),
    "attorch": github("BobMcDear/attorch", "67c2772"),
    "unsloth": github("unslothai/unsloth", "015bdef0"),
    "flash-attention": github("Dao-AILab/flash-attention", "0251105a"),
    "xformers": github("facebookresearch/xformers", "ca6d2aa0"),
    "bitsandbytes": pypi("bitsandbytes", "0.50.2"),
    "flag-gems": pypi("flag-gems", "5.0.2"),
    "chalk": pypi("freesolo-chalk", "0.5.7"),
    "deepseek-v3": github("deepseek-ai/DeepSeek-V3", "9b4e978", "inference"),
    "torchao": pypi("torchao", "0.18.0"),
    "gemlite": github("mobiusml/gemlite", "1a6815d"),
    "sageattention": github("thu-ml/SageAttention", "d1a57a5"),
    "batch-invariant-ops": github("thinking-machines-lab/batch_invariant_ops", "f22b1fb"),
    "gpt-oss": github("openai/gpt-oss", "7b58334"),
    "native-sparse-attention": github("fla-org/native-sparse-attention", "bd67af5"),
    "native-sparse-attention-triton": github("XunhaoLai/native-sparse-attention-triton", "9bea856"),
    "stk": github("stanford-futuredata/stk", "7363137"),
    "megablocks": github("databricks/megablocks", "78eea65"),
    "scattermoe": github("shawntan/scattermoe", "47b5e15"),
    "ml-cross-entropy": github("apple/ml-cross-entropy", "d42911f"),
    "triton-kernels": github("triton-lang/triton", "4b184ccc", "python/triton_kernels"),
    "gluon-tutorials": github("triton-lang/triton", "4b184ccc", "python/tutorials/gluon"),
    "tilelang": pypi("tilelang", "0.1.15", "site-tilelang"),
    "quack": pypi("quack-kernels", "0.6.5", "site-quack"),
    "spargeattn": github("thu-ml/SpargeAttn", "bfd980b"),
    "sglang": pypi("sglang", "0.5.23", "sglang"),
}  # fmt: skip

# Why a case of a project fails, by what the case compares: (project, start of the case's name).
EXPLAINED = {
    ("applied-ai", "softmax"): "the project's: its backward pass exchanges probabilities and gradients",
    ("accelerated-scan", "a linear"): "the project's: an access out of bounds, below",
    ("flashinfer", "GEMM"): "the project's: with beta = 0 the kernel reads C, which nothing has written; here it holds NaN",
    ("fused-turboquant", "Hadamard"): "the project's: races, below; the result depends on the order of the warps",
    ("torchao", "FP8 for training"): "the project's: scales are read out of bounds, below",
    ("gemlite", "a row"): "the project's: weights are read out of bounds, below",
    ("gpt-oss", "attention"): "the project's: with keys before the queries the first keys are left out",
}

# What the findings are: (project, rule, line): verdict and proof.
JUDGED = {
    ("accelerated-scan", "memory-out-of-bounds", "scalar.py:81"):
        "true: `tl.load(states + offset - 1, mask=t > 0)` has no upper limit, and a block has 2048 elements",
    ("torchao", "memory-out-of-bounds", "kernels.py:250"):
        "true: `tl.load(a_s_base_ptr + ...)` has no mask, and a tile has more rows than the array",
    ("gemlite", "memory-out-of-bounds", "gemv_splitK_kernels.py:346"):
        "true: `tl.load(b_ptrs)` has no mask; without tuning a block has 2048 rows, since Triton prunes no single configuration",
    ("fused-turboquant", "race-read-write", "triton_rht.py:66"):
        "true: a warp loads its partner's element, the partner stores a new one, and no barrier lies between",
    ("fused-turboquant", "race-within-warp", "triton_rht.py:66"): "true: as above, where both are lanes of one warp",
    ("lightllm", "race-within-warp", "softmax_topk.py:60"):
        "true: one thread stores the weights, other lanes load them, and nothing orders the two",
    ("lightllm", "race-within-warp", "softmax_topk.py:62"): "true: as above, the second store",
    ("mamba", "bulk-result-read-early", "mamba3_siso_fwd.py:389"):
        "true: a tensor store, then a tensor load of these bytes; Triton 3.6 waits with `wait_group.read`, 3.9 without `.read`",
    ("mamba", "bulk-result-read-early", "mamba3_siso_fwd.py:390"): "true: as above",
}  # fmt: skip

# Launches that a GPU does not repeat, or that differ: what lies behind, by project.
BESIDE = {
    "applied-ai": "f16 atomics of a split product",
    "accelerated-scan": "the access out of bounds",
    "torchnorm": "f32 atomics of the weight's gradient",
    "moe-ops": "atomics give rows their places",
    "fused-turboquant": "its races",
    "mlstm-kernels": "more than 64 launches: an autotuner repeats them",
    "gemlite": "f16 atomics of split sums, and the access out of bounds",
    "torchao": "the access out of bounds",
    "tilelang": "only launches of Triton are compared",
    "quack": "only launches of Triton are compared",
}
