"""Numbers of programs have bounds in native code. Loops end: whatever a program writes into memory, registers and descriptors, a
loop of the run time has a bound that is a constant, or looks at the stop flag, by which time limits and Ctrl-C are heard.

A loop is bounded by itself if it counts to constants, or takes lanes or ranks out of a mask of 32. Of every other one the term
that bounds it stands in BOUNDS, with the most that the term can be and why; or the loop stands in WALKS. Counts of shifts, which
LLVM leaves open from the width on, are constants, masked, or stand in SHIFTS.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mmulator.runtime.launch.limits import MAX_CLUSTER, MAX_LOCAL
from mmulator.runtime.native.asynchrony.maps import MOST_ROW, MOST_SPAN
from mmulator.runtime.native.state import ASYNC_GROUPS, TRANSFERS, FaultKind
from mmulator.sanitizer.checks.proxy_state import METS
from mmulator.sanitizer.checks.values import ROOM
from mmulator.sanitizer.checks.waits import ATOMS
from mmulator.sanitizer.diagnostics.findings.orders import MOST_CLUSTERS
from mmulator.sanitizer.order.views import PLANES
from mmulator.sanitizer.shadow.records import DOUBTS, MET
from tests.support import sources

ROOT = sources.SOURCE
FILES = (
    *sorted((ROOT / "runtime" / "native").rglob("*.py")), *sorted((ROOT / "sanitizer").rglob("*.py")),
    ROOT / "matrix" / "twin" / "moves.py", ROOT / "matrix" / "twin" / "shared.py",
)  # fmt: skip
LONGEST = 1 << 21  # rounds of a loop that does not look at the stop flag: some milliseconds
TEXT = LONGEST  # what is counted in the text of a module, or in the call that launches it, and no program can change
WARPS = 32  # of a CTA, which has 1024 threads
SHARED = 227 * 1024  # bytes of shared memory of a CTA
MATRIX = 1 << 16  # elements of a matrix of one instruction
PIECE = 512  # bytes of a piece of a bulk copy, and of what else is told of at once

# Fields of structs, and parameters and locals (function.name): the most that they are, and why. What is taken from a launch or a
# kernel, Python has checked; what a program says has been held against the memory that there is.
BOUNDS: dict[str, tuple[int, str]] = {
    # of the launch
    "cluster.cta_count": (MAX_CLUSTER, "limits.py"),
    "cluster.warp_count": (MAX_CLUSTER * WARPS, "limits.py"), "w.cta.cluster.warp_count": (MAX_CLUSTER * WARPS, "limits.py"),
    "cta.launch.warps": (WARPS, "limits.py"),
    "cluster.launch.warps": (WARPS, "limits.py"),
    "cluster.span_count": (TEXT, "kinds of memory of a cluster: resident.py"),
    "cta.launch.tiles": (TEXT, "accumulators of a kernel's wgmma"),
    "launch.noisy_count": (TEXT, "blocks of code of the kernel that access memory"),
    "steps.cell_count": (TEXT, "words that the user watches: observation/debug/watching.py"),
    "launch.watch_count": (TEXT, "names that the user watches"),
    "o.bound": (1 << 18, "agents of a cluster: findings/orders.py"),
    "o.planes": (2 * PLANES, "a constant of the kernel"),
    "world.clusters": (MOST_CLUSTERS, "there are no rows for more: findings/orders.py"),
    "world.stride": (1 << 18, "agents of a cluster: findings/orders.py"),
    "p.group_count": (MAX_CLUSTER * WARPS // 4 * METS, "warpgroups of a cluster"),
    # of an instruction
    "a.run_cells": (16, "bytes of a plain access, LARGEST: judgement.py"),
    "own.count": (256, "MOST_PLACES, sectors or words of a request"),
    "site.d_words": (256, "registers of D"), "table.d_words": (256, "registers of D"),
    "table.rival_count": (TEXT, "other accumulators of the kernel"), "table.a_rival_count": (TEXT, "the same, of A"),
    "table.places": (MATRIX, "elements of a matrix"), "tile_values.count": (MATRIX, "table.places"),
    "operand.atoms": (MATRIX, "of the shape"), "operand.lines": (256, "of the shape"),
    "operand.width": (128, "bytes of a swizzle"), "operand.line_bytes": (128, "of the shape"),
    "transpose16.rows": (256, "of the shape"), "transpose16.columns": (256, "of the shape"),
    "unpack_bits.count": (MATRIX, "of the shape"), "operand_without.end": (256, "of the shape"),
    "operand_without.lines": (256, "of the shape"), "rows_without.bytes": (128, "of a line of an operand"),
    "lines_without.registers": (32, "of an operand"), "product_values.of_d": (32, "registers of D"),
    "product_values.each": (4, "elements of a register"), "wgmma_values.each": (4, "elements of a register"),
    "lanes_read_written.count": (32, "registers of a load"), "rows_read_written.matrices": (4, "of ldmatrix"),
    "ldmatrix.count": (4, "matrices"), "stmatrix.count": (4, "matrices"), "stmatrix_image.count": (4, "matrices"),
    "lanes_read_written.whole": (64, "bytes of a load of one lane"),
    "compare_lanes.bytes": (32, "of a store of one lane"), "issue.count": (4, "elements of st.async"),
    "load_run.count": (64, "loads of a block of code"), "copy_lanes.n": (32, "lanes of a copy"),
    "complete.count": (TRANSFERS, "operations that the queue holds"),
    "w.index": (WARPS, "of the warp"), "multiply.count": (4, "WGMMA_STEPS"), "find_pack.count": (64, "packs of a worker"),
    "same_bytes.bytes": (SHARED, "of an operand in shared memory"), "same_bytes.whole": (SHARED, "of the same"),
    "hash_words.count": (1 << 16, "words of a warp's registers and places"),
    "copy_local.size": (MAX_LOCAL, "parameters of a call, which lie in local memory"),
    "has_begun.rank": (MAX_CLUSTER * WARPS * 32, "threads of a cluster"), "has_begun.warps": (WARPS, "launch.warps"),
    "cells_freed.columns": (512, "of an allocation"),
    # of tcgen05: of the instruction, and of a TensorTable, which Python makes
    "work.pair": (1, "cta_group"), "work.divides": (15, "a constant"), "read_columns.parts": (2, "work.pair"),
    "compute_products.count": (8, "TENSOR_STEPS"), "multiply_pieces.count": (8, "TENSOR_STEPS"),
    "move_mma.count": (8, "TENSOR_STEPS"),
    "move.count": (128, "registers of tcgen05.ld and st"),
    "copy.count": (128, "lanes"), "copy.rows": (128, "of the shape"), "copy.bytes": (32, "of a row"),
    "unpack_elements.count": (MATRIX, "of the shape"), "across.rows": (256, "of the shape"),
    "shared_matrix.rows": (256, "of the shape"),
    "across.columns": (256, "of the shape"), "factors.rows": (256, "of the shape"), "factors.count": (6, "of the instruction"),
    "table.pieces": (4, "tensor_state.py"), "table.rows": (128, "of the shape"), "table.columns": (256, "of the shape"),
    "table.cells": (2, "columns of the metadata"),
    # of memory, held against what is there
    "box.rows": (MOST_SPAN // 16, "take_map, and hold_box before anything is counted"),
    "box.row": (MOST_ROW, "take_map"), "box.memory_row": (MOST_ROW, "take_map"), "tell_row.high": (MOST_ROW, "of a row"),
    "move.end": (MOST_SPAN // 16, "box.rows"), "move_tensor_load.end": (MOST_SPAN // 16, "box.rows"),
    "move.rows": (256, "run_of_rows: within a dimension of the box"), "move_tensor_load.rows": (256, "the same"),
    "exchange.rows": (256, "the same"), "exchange.lines": (MOST_ROW // 64, "of a row"), "exchange.end": (MOST_ROW, "of a row"),
    "round_to_tf32.count": (MOST_ROW // 4, "of a row"),
    "bytes_out.bytes": (PIECE, "of a bulk copy"), "reduce.count": (MOST_ROW, "elements of a row or a piece"),
    "carry_out_copy.end": (32, "lanes of a cp.async"),
    "touch_pieces.bytes": (SHARED, "of a bulk copy from shared memory, which have been found there"),
    "is_equal.bytes": (SHARED, "of a box in shared memory"), "one_accessed.bytes": (SHARED, "of what a transfer reads there"),
    "one_brought.bytes": (SHARED, "of a piece of a copy"), "take_source.bytes": (16, "of one access"),
    "nothing_written_at.bytes": (16, "of one access"), "nothing_at.bytes": (MOST_ROW, "of an atomic operation, or a row"),
    "lane_read.bytes": (16, "of an element"), "lane_read.count": (8, "elements of a vector"),
    "lanes_read_unwritten.whole": (32, "bytes of a vector"), "visit.count": (1 << 12, "cells of a sheet"),
    "is_set.count": (SHARED, "bytes of one access"),
    "set_bits.last": (SHARED // 64, "words for the bytes of one access"), "live_in.last": (SHARED // 8, "mbarriers there can be"),
    # what fills up, and is emptied when it is full
    "cluster.under_way": (TRANSFERS, "transfers.py"), "any_awaited.count": (TRANSFERS, "cluster.under_way"),
    "met.count": (MET, "before.py"), "s.atom_count": (ATOMS, "waits.py"), "s.count": (ROOM, "values.py"),
    "s.doubt_count": (DOUBTS, "judgement.py"), "o.stranger_count": (MAX_CLUSTER * WARPS * 32, "lanes of the cluster"),
    "move_columns.columns": (512, "of tcgen05.ld or st, which are there"), "work_columns.columns": (512, "of an accumulator"),
    "all_at_once.count": (32, "patterns of a warp's lanes"),
    "covered.at": (ASYNC_GROUPS, "at - oldest"),
}  # fmt: skip
# Other loops, by function and condition: the most rounds, or 0 where the loop looks at the stop flag, and why.
READERS = 1 << 20  # shadows.py; readers.py drops the oldest where there are more
AMORTISED = LONGEST  # operations that a warp has issued: an instruction has run for each, and each is walked over once
WALKS: dict[str, tuple[int, str]] = {
    "count_copy: done < u64(bytes)": (1 << 13, "lines of 128 bytes of a bulk copy, which has less than 1 MiB"),
    "run_warp: left > 0": (0, "stop[0]"),
    "of_one: first != 0 and u32(cta.unit_counts[first]) == 0": (16, "units of tensor memory"),
    "run_warp: pc >= 0 and left > 0 and (cta.fault == 0) and (stop[0] == 0) and (pauses(w) == 0)": (0, "stop[0]"),
    "run_warp: pc >= 0 and left > pause and (cta.fault == 0) and (pauses(w) == 0)": (16, "blocks of code until the next look"),
    "run_cluster: ended == GOES_ON": (0, "stop[0]"),
    "run_cluster: turn < n": (0, "stop[0]"),
    "run_row: True": (0, "stop[0]"),
    "atomic: seen != old": (LONGEST, "another thread has stored meanwhile, and so gone on"),
    "atomic: now != before": (LONGEST, "another thread has stored meanwhile, and so gone on"),
    "reduce: seen != old": (LONGEST, "another thread has stored meanwhile, and so gone on"),
    "lock_world: atomic_rmw('xchg', address(world.lock), one) != 0": (LONGEST, "another worker holds it, in code that ends"),
    "granule_of: mode == FILLING": (LONGEST, "another worker clears the sheet, in code that ends"),
    "begin_next: count > 1": (LONGEST, "another worker has taken clusters meanwhile"),
    "complete: q.done < end and w.cta.fault == 0": (AMORTISED, "q.done grows"),
    "complete_for_sleepers: number != q.issued": (AMORTISED, "number grows"),
    "carry_out_wgmma: at < limit and w.cta.fault == 0": (AMORTISED, "compute says 1 at least"),
    "compute: more": (4, "count grows to WGMMA_STEPS"),
    "accumulators_early: done != mine.issued and _issued(mine, done).group == group": (AMORTISED, "done grows"),
    "accumulators_committed: at != mine.issued": (AMORTISED, "at grows"),
    "accumulators_left: at != mine.issued": (AMORTISED, "at grows"),
    "miss: n < group.most and group.rows[n % ROWS] < site": (64, "rows of a warpgroup"),
    "exchange: asked < rows and asked <= number + AHEAD": (256, "rows"),
    "no_transfers: cluster.under_way != 0": (TRANSFERS, "each round takes one out"),
    "transfer_for_sleepers: cluster.under_way != 0 and cluster.flips == flips": (TRANSFERS, "as the next"),
    "finish_transfers: cluster.under_way != 0 and (not faulty(cluster))": (TRANSFERS, "each round takes one out, or a fault"),
    "advance: u64(before) != u64(t) and (not faulty(cluster))": (TRANSFERS, "each round takes one out"),
    "advance: u64(older) != u64(t) and w.cta.fault == 0": (TRANSFERS, "each round takes one out"),
    "wait_bulk: place != 0": (TRANSFERS, "place shrinks"),
    "settle: log.open != log.count": (4096, "entries of the log"),
    "find_pack: (entries + at).use == use": (64, "a product uses fewer packs than there are"),
    "search: high - low > 1": (64, "halves"), "area_of: high - low > 1": (64, "halves"),
    "stretch_of: high - low > 1": (64, "halves"), "lanes_read_unwritten: left != 0": (32, "each round takes the highest bit"),
    "row_brought: i < u64(box.high)": (MOST_ROW, "i grows"),
    "print_bytes: chunk <= begin + bytes - 1 >> CHUNK_SHIFT": (SHARED // (1 << 15) + 2, "chunks of the bytes of one access"),
    "touch: left != 0": (SHARED // 256 + 2, "sheets of what has been found to be there"),
    "list_fine: left != 0": (READERS, "a list of readers"), "joined: left != 0": (READERS, "a list of readers"),
    "check_readers: left != 0": (READERS, "a list of readers"), "with_write: left != 0": (READERS, "a list of readers"),
    "pass_atomics: left != 0": (READERS, "a list of readers"),
    "read_by_itself: left != 0": (READERS, "a list of readers"), "knows_past: left != 0": (READERS, "a list of readers"),
    "knows_past: past != 0": (64, "PAST"), "forget_key: left != 0": (64, "PAST"),
    "state_for: earlier != 0": (32, "each round takes the highest bit"),
}  # fmt: skip
CONVERSIONS = {"u8", "u16", "u32", "u64", "i32", "i64", "len", "int"}


@dataclass(frozen=True)
class Loop:
    file: str
    function: str
    node: ast.While | ast.For

    @property
    def where(self) -> str:
        return f"{self.file}:{self.node.lineno} ({self.function})"


@cache
def natives(path: Path) -> list[ast.FunctionDef]:
    return sources.natives(sources.tree(path))


def loops(file: str, functions: list[ast.FunctionDef]) -> Iterator[Loop]:
    """Loops at run time of a file's native functions."""
    for f in functions:
        for node in ast.walk(f):
            counts = isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"
            if isinstance(node, ast.While) or counts:
                yield Loop(file, f.name, node)


def terms(e: ast.expr) -> set[str]:
    """The names that bound an unsigned expression from above, constants left out: a subtrahend only makes it smaller."""
    match e:
        case ast.Constant():
            return set()
        case ast.Name(id=name):
            return set() if name.lstrip("_").isupper() else {name}
        case ast.Attribute(attr=name):
            return set() if name.isupper() else {ast.unparse(e)}
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.Mod(), right=right):
            return set() if not terms(left) or not terms(right) else terms(left) | terms(right)
        case ast.BinOp(left=left, op=ast.Sub() | ast.FloorDiv() | ast.RShift()):
            return terms(left)
        case ast.BinOp(left=left, right=right):
            return terms(left) | terms(right)
        case ast.Call(func=f, args=args) if ast.unparse(f) in CONVERSIONS:
            return set().union(*map(terms, args))
        case ast.Call(func=f, args=args) if ast.unparse(f) in ("minimum", "min"):
            return set() if not all(map(terms, args)) else set().union(*map(terms, args))
    return {ast.unparse(e)}


def takes_out(loop: ast.While) -> bool:
    """`while left != 0` where each round takes out the lowest bit, or lanes among which it looks for the lowest first; whatever
    else must hold besides."""
    test = loop.test
    match test.values[0] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.NotEq()], comparators=[ast.Constant(value=0)]):
            body = [ast.unparse(statement) for statement in loop.body]
            lowest = any(f"trailing_zeros({name})" in line for line in body)
            kept = any(line.startswith(f"{name} = {name} & ~") for line in body)
            return f"{name} = {name} & {name} - 1" in body or (lowest and kept)
    return False


def counted(loop: ast.While) -> ast.expr | None:
    """The bound of a loop: `end` of `while at < end` if each round adds to `at`, `at` of `while at > low` if it falls."""
    match loop.test:
        case ast.Compare(left=ast.Name(id=name) as at, ops=[ast.Lt() | ast.NotEq() | ast.Gt() as op], comparators=[end]):
            up = not isinstance(op, ast.Gt)
            sign = "+" if up else "-"
            if any(ast.unparse(statement).startswith(f"{name} = {name} {sign} ") for statement in loop.body):
                return end if up else at
    return None


def needed(loop: Loop) -> tuple[set[str], set[str]]:
    """Keys of BOUNDS, and of WALKS, that a loop wants."""
    node = loop.node
    if isinstance(node, ast.For):
        assert isinstance(node.iter, ast.Call)
        given = node.iter.args
        end: ast.expr | None = given[0] if len(given) == 1 else given[1]
    elif takes_out(node):
        return set(), set()
    else:
        end = counted(node)
        if f"{loop.function}: {ast.unparse(node.test)}" in WALKS or end is None:
            return set(), {f"{loop.function}: {ast.unparse(node.test)}"}
    assert end is not None
    return {name if "." in name else f"{loop.function}.{name}" for name in terms(end)}, set()


@cache
def every() -> tuple[Loop, ...]:
    return tuple(loop for p in FILES for loop in loops(str(p.relative_to(ROOT)), natives(p)))


def test_every_loop_of_native_code_is_bounded() -> None:
    found = [(loop, *needed(loop)) for loop in every()]
    assert len(found) > 250
    unknown = [f"{loop.where}: {key}" for loop, terms, walks in found for key in {*terms} - {*BOUNDS} | walks - {*WALKS}]
    assert not unknown, "say in BOUNDS or WALKS what bounds these, and why; what a program says must be held against memory"
    terms = set().union(*(t for _, t, _ in found))
    walks = set().union(*(w for _, _, w in found))
    assert {*BOUNDS} == terms and {*WALKS} == walks, "entries that no loop wants"


def test_bounds_are_short_and_the_others_look_at_the_stop_flag() -> None:
    assert all(1 <= most <= LONGEST for most, _ in BOUNDS.values())
    for loop in every():
        for key in needed(loop)[1]:
            most, _ = WALKS[key]
            assert 0 <= most <= LONGEST
            if not most:
                assert "stop[0]" in ast.unparse(loop.node), f"{loop.where} does not look at the stop flag"


def test_the_law_sees_loops_that_have_no_bound() -> None:
    """The law's reading rejects loops that programs could make long."""
    text = """
@native
def f(w, words):
    left = words[0]
    for i in range(words[0]): pass
    for i in range(u32(box.count) * 2): pass
    while left != 0:
        left = left - words[1]
    while i < end:
        i = i + 1
    for i in range(4): pass
    while left != 0:
        left = left & (left - 1)
def g():
    def h(w):
        for i in range(n // 2): pass
    return Native(h)
"""
    wanted = [needed(loop) for loop in loops("x.py", sources.natives(ast.parse(text)))]
    assert sorted(key for terms, walks in wanted for key in terms | walks) == [
        "box.count", "f.end", "f.words[0]", "f: left != 0", "h.n",
    ]  # fmt: skip


# shifts -------------------------------------------------------------------------------------------------------------
# Counts of shifts that are no constants and not masked: the most that they are, and why.
LANES = ("lane", "other", "own", "a.lane", "t.lane", "other.lane", "who.lane", "source.lane", "k.issued.lane", "u64(lane)",
         "record_lane", "first", "4 * r + t")  # fmt: skip
RANKS = ("rank", "rank ^ 1", "w.cta.rank", "w.cta.cluster.cta_count")
TABLES = (
    "i", "half", "bit", "bits", "count", "nibble", "nibbles", "n * 4", "len(ROWS) * count", "8 * t + (r >> 1)", "p.low",
    "p.shift", "part.low", "part.shift", "64 - field.bits", "per.bit_length() - 1", "u8((at & per - 1) * bits)",
    "U32(n * 4)", "place",
    "u64((lane >> 2) + 8 * (r & 1))", "u64((place >> 2) + 8 * half)", "u64(place[0])", "u64(place[1])",
    "u64(table[r * LANES + lane])", "offsets // PART", "MOST_ADDRESS.bit_length() - 1",
)  # fmt: skip
SHIFTS: dict[str, tuple[int, str]] = {
    **dict.fromkeys(LANES, (31, "a lane")),
    **dict.fromkeys(RANKS, (MAX_CLUSTER, "a rank of the cluster, which a mask of ranks or the launch names")),
    **dict.fromkeys(TABLES, (63, "a constant of the instruction, unrolled or in a table that Python has made")),
    "id": (15, "of a barrier: barrier.py refuses others"), "warp": (3, "of a warpgroup"),
    "box.shift": (7, "take_swizzle"), "box.shift_low": (7, "take_swizzle"), "shift": (63, "take_swizzle; of an element"),
    "box.type": (24, "take_type knows it"), "code": (24, "take_type knows it"), "swizzle": (31, "take_swizzle knows it"),
    "u64(kind)": (63, "of a fault"),
    **dict.fromkeys(("units", "found", "unit"), (16, "units of tensor memory: a place among 16, held against what is there")),
    "u64(8 * p)": (24, "of a piece, one of four"), "u64(32 + p)": (35, "of a piece, one of four"),
    "8 * (byte + s)": (24, "of a scale factor in its cell"), "6 * j": (18, "unrolled"),
    "select(box.elements == 1, 0, u32(UNIT_BITS))": (4, "a constant"),
    **dict.fromkeys(("granule", "a.granule", "u64(granule)", "U64(granule)"), (4, "of a sheet")),
    "trailing_zeros(shape)": (31, "of what is not 0"),
    "need": (4, "of a sheet"), "u64(need)": (4, "of a sheet"), "more": (4, "of a sheet"), "mode - 1": (4, "of a sheet"),
    "mode": (3, "two bits of a descriptor"), "copied": (31, "a lane"), "u64(reader)": (31, "a warp of a block"),
    **dict.fromkeys(("one - 1", "other - 1"), (4, "a pattern of swizzle, from 1 on and below SHIFTED")),
}  # fmt: skip


def is_constant(e: ast.expr) -> bool:
    match e:
        case ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_").isupper()
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.Mod(), right=right):
            return is_constant(left) or is_constant(right)
        case ast.BinOp(left=left, right=right):
            return is_constant(left) and is_constant(right)
        case ast.Call(args=[_, *_] as args):
            return all(map(is_constant, args))
    return False


def test_counts_of_shifts_are_below_the_width() -> None:
    counts = {
        ast.unparse(node.right)
        for p in FILES
        for f in natives(p)
        for node in ast.walk(f)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift) and not is_constant(node.right)
    }
    assert len(counts) > 40
    assert not counts - {*SHIFTS}, "mask these, or say in SHIFTS what bounds them"
    assert not [count for count in counts if "RANK_SHIFT" in count], "locate.one_cta has the bit of an address's rank"
    assert all(most < 64 for most, _ in SHIFTS.values())
    assert max(FaultKind) < 64
