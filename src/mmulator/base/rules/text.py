"""Rules that no run of a kernel alone breaks: of a module's text (ptx/program/static.py), numbers from 900 on; of a program's
launches (`OF_LAUNCHES`, which doors look at), numbers from 950 on.
"""

from mmulator.base.rules.rule import Rule, Severity

_COPY = "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async."

COPY_NOT_COMMITTED = Rule(
    900, "cp-async-not-committed", Severity.WARNING, "a cp.async belongs to no group when its thread exits",
    _COPY + "commit_group",
    "cp.async.wait_group waits for groups, so it does not wait for a cp.async that no cp.async.commit_group follows, and nobody "
    "knows when its bytes are there.",
    "put cp.async.commit_group after the last cp.async of a batch, or wait with cp.async.wait_all",
    static=True,
)  # fmt: skip
COPY_NOT_WAITED = Rule(
    901, "cp-async-not-waited", Severity.WARNING, "nothing waits for a cp.async",
    _COPY + "wait_group",
    "The bytes of a cp.async are there after cp.async.wait_group or cp.async.wait_all, or when an mbarrier that "
    "cp.async.mbarrier.arrive told of it completes its phase. Who reads them without may read what was there before.",
    "put cp.async.wait_group or cp.async.wait_all, and a barrier if other threads read the bytes, before they are read",
    static=True,
)  # fmt: skip
WAIT_IGNORED = Rule(
    902, "mbarrier-wait-ignored", Severity.WARNING, "nobody looks at what a wait for an mbarrier says",
    "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait",
    "mbarrier.try_wait says whether the phase is complete, and may come back before it is. Who does not look goes on whether the "
    "bytes are there or not.",
    "branch back to the wait while its predicate is false",
    static=True,
)  # fmt: skip

AUTOTUNE_IN_PLACE = Rule(
    950, "autotune-in-place", Severity.WARNING, "a kernel reads what its own trials wrote",
    "Triton, triton.autotune: reset_to_zero, restore_value",
    "An autotuner runs each configuration with the program's own arguments, before the one that counts. Where the kernel reads "
    "memory that it writes, this launch begins with what the trials left there, on a GPU too.",
    "give triton.autotune restore_value, or reset_to_zero for sums, with the names of these arguments",
)  # fmt: skip

OF_LAUNCHES: tuple[Rule, ...] = (AUTOTUNE_IN_PLACE,)
