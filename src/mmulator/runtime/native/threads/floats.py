"""The host's floating-point environment. Programs change it (torch.set_flush_denormal does), and threads inherit it. A kernel's
arithmetic must not depend on it, so native code runs in the default environment of a process.
"""

from mmulator.base.codegen.cpus import ARM, X86
from mmulator.base.codegen.engine import architecture
from mmulator.base.codegen.ops import load, store
from mmulator.base.codegen.types import u64, void
from mmulator.base.codegen.values import Value, constant

MXCSR = 0x1F80  # round to nearest, subnormals as they are, nothing traps


def enter(kept: Value) -> None:
    """Macro: switch to the default environment. kept: 16 bytes for the previous one."""
    b = kept.b
    if architecture() == X86:
        store(constant(b, u64, MXCSR), kept + 1)
        b.call("llvm.x86.sse.stmxcsr", void, [kept])
        b.call("llvm.x86.sse.ldmxcsr", void, [kept + 1])
    elif architecture() == ARM:
        store(b.call("llvm.aarch64.get.fpcr", u64, []), kept)
        b.call("llvm.aarch64.set.fpcr", void, [constant(b, u64, 0)])


def leave(kept: Value) -> None:
    """Macro: restore the previous environment."""
    b = kept.b
    if architecture() == X86:
        b.call("llvm.x86.sse.ldmxcsr", void, [kept])
    elif architecture() == ARM:
        b.call("llvm.aarch64.set.fpcr", void, [load(u64, kept)])
