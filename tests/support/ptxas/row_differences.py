"""Where ptxas and the rows of these chapters disagree, and why."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.ptxas.verdicts import Statement


@dataclass(frozen=True)
class RowDifference:
    """reason: what ptxas does, and what is done here. accepted: whether ptxas takes it. holds: which statements."""

    reason: str
    accepted: bool
    holds: Callable[[Statement], bool]


_NARROW = re.compile(r"\[%[bus](8|16|32)_\d")
_COUNT = re.compile(r"cp\.async\.bulk\.wait_group(\.read)? (-\d+|\d{10,})")


DIFFERENCES: tuple[RowDifference, ...] = (
    RowDifference(
        "a generic or global address in a register of fewer than 64 bits passes, on some targets: it is none, and refused",
        True, lambda s: _NARROW.search(s.text) is not None,
    ),
    RowDifference(
        "wait_group takes any constant: what is no number of groups is refused", True, lambda s: _COUNT.match(s.text) is not None,
    ),
    RowDifference(
        "cp.reduce.async.bulk.tensor takes .tile::scatter4, which the specification does not have", True,
        lambda s: s.mnemonic.startswith("cp.reduce.async.bulk.tensor") and "tile::scatter4" in s.mnemonic,
    ),
    RowDifference(
        "fence.proxy takes .sync_restrict where the specification has none, without a meaning", True,
        lambda s: "sync_restrict" in s.mnemonic and "proxy" in s.mnemonic,
    ),
    RowDifference(
        "surplus modifiers pass: of tensormap.replace for tensormap.cp_fenceproxy, a scope for st.async and tensor copies, .b128 "
        "for bulk copies, .sync for setmaxnreg and elect, a state space for fence.proxy, .async for other fences, formats for "
        "tcgen05.commit, a scope for mbarrier.check_layout", True,
        lambda s: "qualifier" in s.what and (s.mnemonic.startswith(
            ("tensormap.cp_", "st.async", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "setmaxnreg", "fence", "elect",
             "tcgen05.commit", "mbarrier.check_layout")
        ) or (s.mnemonic.startswith("cp.async.bulk.") and ".b128" in s.mnemonic)),
    ),
    RowDifference(
        "an address of a tensor copy may be without brackets", True,
        lambda s: "async.bulk.tensor" in s.mnemonic and any(not o.startswith("[") for o in s.operands[:3]),
    ),
    RowDifference(
        "red.async combines bits of floats, and takes .relaxed without an mbarrier, now and then", True,
        lambda s: s.mnemonic.startswith("red.async") and (re.search(r"%f32|0f", s.text) is not None or ".relaxed" in s.mnemonic),
    ),
    RowDifference(
        "st.async has no vector of a constant and a register that is not of its kind", False,
        lambda s: s.mnemonic.startswith("st.async") and re.search(r"\{[^}]*%f", s.text) is not None,
    ),
    RowDifference(
        "the mbarrier of clusterlaunchcontrol in a generic address may be a name in .global", True,
        lambda s: s.mnemonic.startswith("clusterlaunchcontrol.try") and "gvar" in s.text,
    ),
    RowDifference(
        "a size of 2^32 is read as 0", True, lambda s: s.mnemonic.startswith("cp.") and "4294967296" in s.text,
    ),
    RowDifference(
        "fence.acquire and fence.release pass before PTX 8.6 and on sm_80 with ptxas 13.0, not with 13.5", True,
        lambda s: re.match(r"fence\.(acquire|release)\.(cta|cluster|gpu|sys);", s.text) is not None,
    ),
    RowDifference(
        "multimem is less strict with registers and constants for halves and FP8; it is not run", True,
        lambda s: s.mnemonic.startswith("multimem"),
    ),
    RowDifference(
        "multimem with FP8 on sm_120 needs the `a` target, here `f` as well; it is not run", False,
        lambda s: s.mnemonic.startswith("multimem") and str(s.target) in ("sm_120f", "sm_121f"),
    ),
    RowDifference(
        "before PTX 7.1 mbarrier.arrive has no `_`", False,
        lambda s: s.mnemonic.startswith("mbarrier.arrive.") and s.ptx < (7, 1) and s.operands[:1] == ("_",),
    ),
    RowDifference(
        "the offsets of im2col take a .f16 register", True,
        lambda s: "im2col" in s.mnemonic and re.search(r"%f16_\d", s.text) is not None,
    ),
    RowDifference(
        "where a vector has a constant, registers of other sizes pass", True,
        lambda s: re.search(r"\{[^}]*(?<![\w%])-?\d", s.text) is not None,
    ),
    RowDifference(
        "`.sync` passes twice where it is part of the name, as in bar.sync.sync", True,
        lambda s: s.mnemonic.split(".").count("sync") == 2
        and s.mnemonic.startswith(("bar.", "barrier.", "elect", "setmaxnreg", "tensormap.cp_", "redux.")),
    ),
    RowDifference(
        "a barrier takes any multiple of 32 as its number of threads: no block has more than 1024", True,
        lambda s: re.match(r"bar(rier)?\.", s.mnemonic) is not None and "cluster" not in s.mnemonic
        and any(re.fullmatch(r"\d+", o) and int(o) > 1024 for o in s.operands),
    ),
    RowDifference(
        "what a wait for an mbarrier reports may be a constant, where nothing is written, and the parity any number", True,
        lambda s: "phase_type::primary" in s.mnemonic and any(re.match(r"-?\d", o) for o in s.operands),
    ),
    RowDifference(
        "fence.proxy.tensormap names a parameter of the kernel in a generic address", True,
        lambda s: s.mnemonic.startswith("fence.proxy.tensormap") and "[pvar" in s.text,
    ),
    RowDifference(
        "prefetch.L1::32B.valid_addr takes a second level", True,
        lambda s: s.mnemonic.startswith("prefetch") and "L1::32B" in s.text,
    ),
    RowDifference(
        "tcgen05.mma takes .scale-input-d for integers, where the specification has it for floats", True,
        lambda s: re.match(r"tcgen05\.mma.*kind::i8.*(pred_\d|\d), -?\d+;", s.text) is not None,
    ),
    RowDifference(
        "the constants of tcgen05.alloc and .dealloc are taken modulo 2^32, and with .exclusive may be any multiple of 32", True,
        lambda s: re.match(r"tcgen05\.(de)?alloc.*, -?\d+;", s.text) is not None,
    ),
    RowDifference(
        "ptxas 12.9 and 13.0 have no constant as the mask of tcgen05.commit, and scales without a size of blocks from PTX 8.8 on",
        False, lambda s: re.search(r"multicast::cluster\.b64 .*, (0x)?\d+;", s.text) is not None
        or (s.ptx < (8, 8) and re.search(r"mxf(4|8f6f4)\b", s.mnemonic) is not None and not re.search("scale_vec", s.mnemonic)),
    ),
    RowDifference(
        "sm_107 has .kind::ti16 and masks of 32 bits: no chip with them is modelled", True,
        lambda s: "kind::ti16" in s.mnemonic or "multicast::cluster::32b" in s.mnemonic,
    ),
    RowDifference(
        "a .f16x2 register passes as an integer", True, lambda s: "%f16x2_" in s.text,
    ),
    RowDifference(
        "the address of a tensor map may be in a register of any type", True,
        lambda s: re.search(r"\[%(f|pred)\w*_\d", s.text) is not None and "tensor" in s.mnemonic,
    ),
    RowDifference(
        "st.async and red.async with a completion or an mbarrier alone, and a vector without .v2 or .v4, pass: without a meaning",
        True, lambda s: s.mnemonic.startswith(("st.async", "red.async")) and (
            ("mbarrier" in s.mnemonic) != (len(s.operands) == 3) or "{" in s.text),
    ),
    RowDifference(
        "the mbarrier of a generic st.async, cp.async.mbarrier.arrive, check_layout or tcgen05.commit, and the result of "
        "tcgen05.alloc, may be a name in .global or .local",
        True, lambda s: s.mnemonic.startswith(
            ("st.async", "red.async", "cp.async.mbarrier", "mbarrier.check_layout", "tcgen05.commit", "tcgen05.alloc")
        ) and re.search("gvar|lvar", s.operands[0 if s.mnemonic.startswith("tcgen05") else -1]) is not None,
    ),
    RowDifference(
        "a predicate passes beside .b32 registers in a vector", True,
        lambda s: re.search(r"\{[^}]*%b32_[^}]*%pred_|\{[^}]*%pred_[^}]*%b32_", s.text) is not None,
    ),
    RowDifference(
        "a constant passes as the response of clusterlaunchcontrol", True,
        lambda s: s.mnemonic.startswith("clusterlaunchcontrol.query") and "%b128" not in s.text,
    ),
    RowDifference(
        "an address in .shared in a register of 8 or 16 bits is refused from sm_100 on, without a reason that names it", False,
        lambda s: re.search(r"\[%[bus](8|16)_\d", s.text) is not None,
    ),
    RowDifference(
        "st.bulk of a named variable: ptxas 13.0 fails inside", False,
        lambda s: s.mnemonic.startswith("st.bulk") and "smem" in s.operands[0],
    ),
    RowDifference(
        "st.bulk takes a size of 32 bits, now and then", True,
        lambda s: s.mnemonic.startswith("st.bulk") and re.match(r"%[bus]32", s.operands[1]) is not None,
    ),
    RowDifference(
        "fence.proxy takes its modifiers in any order, but .proxy first", False,
        lambda s: s.mnemonic.startswith("fence.") and "proxy" in s.mnemonic.split(".")[2:],
    ),
)  # fmt: skip


def listed(s: Statement, accepted: bool) -> str:
    """The reason of a difference that is known; empty for another one."""
    return next((d.reason for d in DIFFERENCES if d.accepted == accepted and d.holds(s)), "")
