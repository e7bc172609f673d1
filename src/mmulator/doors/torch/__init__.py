"""torch's CUDA device over memory of the host."""


def install() -> None:
    from mmulator.doors.torch import cuda

    cuda.install()
