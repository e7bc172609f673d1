"""Rules for registers that a wgmma in flight still uses. Their numbers begin at 100."""

from collections.abc import Collection

from mmulator.base.rules.rule import Rule, Severity

_TITLE = "PTX ISA 9.1, Asynchronous Multiply-and-Accumulate Instruction: wgmma."
_FENCE, _COMMIT, _WAIT = _TITLE + "fence", _TITLE + "commit_group", _TITLE + "wait_group"

READ_EARLY = Rule(
    100, "wgmma-accumulator-read-before-wait", Severity.ERROR, "an accumulator is read while a wgmma is still adding to it",
    _WAIT,
    "Between a wgmma.mma_async and the wgmma.wait_group that covers its group the accumulator registers are not the program's: "
    "what is read there is undefined, also by a mov, and also as the A of another wgmma. ptxas puts a wait where it sees that "
    "(warning C7517), and then wgmma run one after the other; what it does not see reads old or half-made sums.",
    "put wgmma.commit_group after the wgmma and a wgmma.wait_group with a small enough N before the read",
    static=True,
)  # fmt: skip
WRITTEN_EARLY = Rule(
    101, "wgmma-accumulator-written-before-wait", Severity.ERROR, "an accumulator is written while a wgmma is still adding to it",
    _WAIT,
    "Between a wgmma.mma_async and the wgmma.wait_group that covers its group the accumulator registers are not the program's: "
    "what is written there may be lost, or added to.",
    "wait for the group first, or use other registers",
    static=True,
)  # fmt: skip
A_OVERWRITTEN = Rule(
    102, "wgmma-a-overwritten-before-wait", Severity.ERROR, "registers with A are written while a wgmma may still read them",
    _WAIT,
    "A wgmma.mma_async with A in registers reads them at any time until the wgmma.wait_group that covers its group. What is "
    "written there before may be multiplied in place of A.",
    "wait for the group first, or give the next A other registers",
    static=True,
)  # fmt: skip
A_READ = Rule(
    103, "wgmma-a-read-before-wait", Severity.WARNING, "registers with A are read while a wgmma uses them",
    _WAIT,
    "The registers with A of a wgmma.mma_async may not be accessed before the wgmma.wait_group that covers its group. Nobody has "
    "seen a read do harm.",
    "read them before the wgmma, or wait for its group first",
    static=True,
)  # fmt: skip
FENCE_MISSING = Rule(
    104, "wgmma-fence-missing", Severity.ERROR, "no wgmma.fence lies between an access to registers and the wgmma that uses them",
    _FENCE,
    "Each warp of a warpgroup must execute wgmma.fence before its first wgmma.mma_async, and between any access to a register "
    "and a wgmma.mma_async that uses it as accumulator or A. Only wgmma of one shape on the same accumulators need none between "
    "them. Else the wgmma may read what was there before. ptxas puts a fence there where it sees it (warning C7519).",
    "put wgmma.fence.sync.aligned between the last access to these registers and the wgmma, where all warps execute it",
    static=True,
)  # fmt: skip
NOT_COMMITTED = Rule(
    105, "wgmma-not-committed", Severity.WARNING, "a wgmma belongs to no group when its thread exits",
    _COMMIT,
    "wgmma.wait_group waits for groups, so a wgmma.mma_async that no wgmma.commit_group follows is never waited for, and "
    "what it computed can never be used.",
    "put wgmma.commit_group after the last wgmma of a batch, and wgmma.wait_group before its results are used",
    static=True, says="the thread exits, and no wgmma.commit_group has followed this wgmma",
)  # fmt: skip
NOT_WAITED = Rule(
    106, "wgmma-not-waited", Severity.WARNING, "a thread exits while a group of wgmma is pending",
    _WAIT,
    "What a wgmma.mma_async computed can be used after the wgmma.wait_group that covers its group; here none follows.",
    "put wgmma.wait_group 0 before the results are used, or leave out the wgmma",
    static=True, says="the thread exits, and no wgmma.wait_group has covered this wgmma's group",
)  # fmt: skip
OVERLAP = Rule(
    107, "wgmma-accumulators-overlap", Severity.WARNING, "accumulators of two wgmma in flight share some of their registers",
    _FENCE,
    "Wgmma of one shape on the same accumulators are done in order. If the lists of registers overlap without being the same, "
    "ptxas copies registers (warning C7511), and copies what they held before the first wgmma: its product is lost there.",
    "use the same list or none of its registers; else wait for the first one, or put wgmma.fence between them",
)  # fmt: skip

SERIALIZED = Rule(
    108, "wgmma-serialized", Severity.NOTE, "registers of a wgmma in flight, or without a fence, are used in code for debuggers",
    _WAIT,
    "In code that is compiled with -G (.target debug) accumulators go through memory beside each wgmma, also before the fence or "
    "wait of the program. ptxas puts fences and waits there (C7519, C7520), and wgmma run one after the other: the results are "
    "right. That is why this is a note.",
    "compile without -G: then the same place breaks a rule, or none",
    static=True,
)  # fmt: skip



def in_module(rule: Rule, options: Collection[str]) -> Rule:
    """The rule that is broken where a module breaks a rule. options: words of its .target besides the architecture."""
    mended = rule in (READ_EARLY, WRITTEN_EARLY, A_OVERWRITTEN, FENCE_MISSING)
    return SERIALIZED if mended and "debug" in options else rule
