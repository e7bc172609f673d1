"""The projects whose kernels are called, with the version that was run, and verdicts on what the sanitizer finds in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Project:
    """Where a project is from. version: a commit, or of a package. paths: folders of its modules, in the folder of the projects;
    a package of PyPI lies in `site` there."""

    source: str
    version: str
    paths: tuple[str, ...] = ()


def github(name: str, commit: str, *paths: str) -> Project:
    """A clone, in a folder that has the last part of its name."""
    folder = name.rpartition("/")[2]
    return Project(f"https://github.com/{name}", commit, tuple(f"{folder}/{path}" for path in paths) or (folder,))


def pypi(name: str, version: str, *paths: str) -> Project:
    return Project(f"https://pypi.org/project/{name}/", version, paths)


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
    "pytorch-inductor": pypi("torch", ""),
}  # fmt: skip
