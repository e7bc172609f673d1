"""The readers of a granule of memory since its last write: lists that cells share (shadow.py)."""

from mmulator.base.codegen.lang import native
from mmulator.base.codegen.types import boolean, ptr_to, u32, u64
from mmulator.sanitizer.shadow.before import UNORDERED, check_access, comes_after_all, is_link, issue_level, known_lanes, turned
from mmulator.sanitizer.shadow.judgement import SIZES
from mmulator.sanitizer.shadow.records import (
    ATOMIC,
    CROWD,
    JOINS,
    LANE_BITS,
    LANE_MASK,
    LIST,
    LIST_KEY,
    STRONG,
    WRITE,
    Actor,
    Store,
    forget_reader,
    new_node,
)
from mmulator.sanitizer.state import of_launch


@native
def replaced(a: ptr_to(Actor), number: u32, turn: u32, shift: u32) -> boolean:
    """Whether every access after the actor's read is also after a reader of a list, so that the list need not keep this reader.
    turn, shift: lanes of the reader and of the actor, both relative to the cell's.
    """
    r = a.store.records + number
    if number == 0 or (a.flags & ~r.flags & STRONG) != 0 or r.cut != 0:
        return False
    if a.store.foreign != 0:
        if r.cluster != u32(a.cluster.number):
            return False
    if r.agent == a.agent and r.clock <= a.clock:
        if (turned(r.lanes, turn) & ~turned(a.shape, shift)) == 0:
            return True
    if a.asynchronous == 0:
        return (r.all & ~known_lanes(a, r, number)) == 0
    return issue_level(a, r, number, r.all) != UNORDERED


@native
def joined(a: ptr_to(Actor), list: u32, shift: u32) -> u64:
    """A list with the actor's read added: the new list, and in the upper bits the shift of its own lane.

    a: the actor.
    list: the readers in a cell, without the lane.
    shift: the actor's lane relative to the cell's.
    """
    store = a.store
    item = (a.record << LANE_BITS) | shift
    spread = (list * 0x9E3779B1) ^ (item * 0x85EBCA6B)
    memo = store.joins + ((spread >> 16) & (JOINS - 1))
    if memo.list == list and memo.entry == item:
        return u64(memo.made) | (u64(memo.shift) << 32)
    memo.list = list
    memo.entry = item
    memo.shift = 0
    memo.made = list
    left = list & ~u32(LIST_KEY)
    if list < LIST_KEY:  # one alone
        if list == a.record and shift == 0:
            return u64(list)
        if replaced(a, list, 0, shift):
            memo.made = a.record
            memo.shift = shift
            return u64(a.record) | (u64(shift) << 32)
        last = new_node(a.races, store, list << LANE_BITS, 0)
        if last != 0:
            first = new_node(a.races, store, item, last)
            if first != 0:
                memo.made = first | LIST_KEY
        if memo.made == list:
            forget_reader(a)
        return u64(memo.made)
    if (store.nodes + left).entry == 0:
        return u64(list)
    count = u32(0)
    dropped = u32(0)
    while left != 0:
        node = store.nodes + left
        if node.entry == item:
            return u64(list)
        if replaced(a, node.entry >> LANE_BITS, node.entry & LANE_MASK, shift):
            dropped = dropped + 1
        else:
            count = count + 1
        left = node.next
    if count == 0:
        memo.made = a.record
        memo.shift = shift
        return u64(a.record) | (u64(shift) << 32)
    if dropped == 0 and count < store.most:
        first = new_node(a.races, store, item, list & ~u32(LIST_KEY))
        if first != 0:
            memo.made = first | LIST_KEY
        else:
            forget_reader(a)
        return u64(memo.made)
    if dropped == 0 and of_launch(a.cluster).certifies != 0:
        first = new_node(a.races, store, u32(0), list & ~u32(LIST_KEY))
        if first != 0:
            memo.made = first | LIST_KEY
        else:
            forget_reader(a)
        return u64(memo.made)
    made = u32(0)
    left = list & ~u32(LIST_KEY)
    while left != 0:
        node = store.nodes + left
        full = node.next == 0 and count >= store.most  # the oldest
        gone = replaced(a, node.entry >> LANE_BITS, node.entry & LANE_MASK, shift)
        if full and not gone:
            forget_reader(a)
        if not gone and not full:
            made = new_node(a.races, store, node.entry, made)
        left = node.next
    first = new_node(a.races, store, item, made)
    if first != 0:
        memo.made = first | LIST_KEY
    else:
        forget_reader(a)
    return u64(memo.made)


@native
def with_reader(a: ptr_to(Actor), readers: u32) -> u32:
    """The readers of a cell, with the actor added."""
    if readers == 0:
        return a.entry
    lane = readers & LANE_MASK
    both = joined(a, readers >> LANE_BITS, (a.lane - lane) & LANE_MASK)
    return (u32(both) << LANE_BITS) | ((lane + u32(both >> 32)) & LANE_MASK)


@native
def check_readers(a: ptr_to(Actor), last: u32, readers: u32) -> None:
    """Check an access against the writes that a list of readers keeps, and a write against all readers, too. last: the last
    write."""
    after_all = comes_after_all(a, last)
    newest = (a.store.records + (last >> LANE_BITS)).flags
    if (readers & LIST) == 0:
        r = a.store.records + (readers >> LANE_BITS)
        if ((a.flags | r.flags) & WRITE) != 0:
            check_access(a, readers, r.flags & WRITE)
        return
    lane = readers & LANE_MASK
    left = (readers & ~u32(LIST)) >> LANE_BITS
    while left != 0:
        node = a.store.nodes + left
        r = a.store.records + (node.entry >> LANE_BITS)
        if node.entry == 0:
            if a.kept == 0:  # a write of another value, or one that is ordered after the last
                forget_reader(a)
        elif ((a.flags | r.flags) & WRITE) != 0:
            if after_all and r.passed == 0 and is_link(a, r) and ((r.flags ^ newest) & SIZES) == 0:
                left = node.next
                continue
            check_access(a, (node.entry & ~u32(LANE_MASK)) | ((node.entry + lane) & LANE_MASK), r.flags & WRITE)
        left = node.next


@native
def read_by_itself(a: ptr_to(Actor), readers: u32) -> u32:
    """1 + the site at which the actor's own thread was the last to read the bytes that it overwrites; 0 if it was not."""
    lane = readers & LANE_MASK
    left = (readers & ~u32(LIST)) >> LANE_BITS
    item = readers
    if (readers & LIST) != 0:
        node = (a.store.nodes + left).entry
        item = (node & ~u32(LANE_MASK)) | ((node + lane) & LANE_MASK)
    while left != 0:
        r = a.store.records + (item >> LANE_BITS)
        if r.agent == a.agent and r.cluster == u32(a.cluster.number):
            if ((turned(r.lanes, item & LANE_MASK) >> a.lane) & 1) != 0:
                return r.site + 1
        if (readers & LIST) == 0:
            return 0
        left = (a.store.nodes + left).next
        if left != 0:
            node = (a.store.nodes + left).entry
            item = (node & ~u32(LANE_MASK)) | ((node + lane) & LANE_MASK)
    return 0


@native
def was_read(store: ptr_to(Store), readers: u32) -> u32:
    """1 if the newest of a cell's readers is a reader, and not a write that is kept in the list."""
    if readers == 0:
        return readers
    item = readers
    if (readers & LIST) != 0:
        item = (store.nodes + ((readers & ~u32(LIST)) >> LANE_BITS)).entry
    return u32(item != 0 and ((store.records + (item >> LANE_BITS)).flags & WRITE) == 0)


@native
def pass_atomics(a: ptr_to(Actor), readers: u32) -> None:
    """Note that later atomic operations may not have seen those of a list."""
    if (readers & LIST) == 0:
        (a.store.records + (readers >> LANE_BITS)).passed = 1
        return
    left = (readers & ~u32(LIST)) >> LANE_BITS
    while left != 0:
        node = a.store.nodes + left
        (a.store.records + (node.entry >> LANE_BITS)).passed = 1
        left = node.next


@native
def with_write(a: ptr_to(Actor), last: u32, readers: u32) -> u32:
    """The readers of a cell after a weak write: none, or for a certificate those before it and the last write, if nothing orders
    the two, so that later writes are judged against both."""
    if a.kept == 0 or of_launch(a.cluster).certifies == 0:
        return 0
    pass_atomics(a, readers)
    if readers == 0 or readers == last:
        return last
    lane = readers & LANE_MASK
    node = (readers & ~u32(LIST)) >> LANE_BITS
    if (readers & LIST) == 0:
        node = new_node(a.races, a.store, readers & ~u32(LANE_MASK), 0)
    item = (last & ~u32(LANE_MASK)) | ((last - lane) & LANE_MASK)
    left = node
    count = u32(0)
    while left != 0:
        if (a.store.nodes + left).entry == item or (a.store.nodes + left).entry == 0:
            return readers
        count = count + 1
        left = (a.store.nodes + left).next
    if a.store.foreign != 0 and count >= CROWD:
        item = u32(0)
    first = new_node(a.races, a.store, item, node)
    if first == 0 or node == 0:
        forget_reader(a)
        return readers
    return LIST | (first << LANE_BITS) | lane


@native(inline=True)
def behind(a: ptr_to(Actor), last: u32, readers: u32) -> u32:
    """The readers of a cell after a write: none after a weak write. After a strong write the earlier ones stay, because other
    strong accesses may come from threads that are not ordered after them; the last write is kept too if it was weak. For a
    certificate atomic operations are kept like readers: nothing orders them, and the last one says nothing of the others.
    """
    if (a.flags & (STRONG | ATOMIC)) == 0:
        return with_write(a, last, readers)
    kept = readers
    if readers != 0 and of_launch(a.cluster).certifies != 0 and not is_link(a, a.store.records + a.record):
        pass_atomics(a, readers)
    if readers == 0 and last != 0:
        if ((a.store.records + (last >> LANE_BITS)).flags & (STRONG | ATOMIC)) == 0:
            kept = last
    if (a.flags & ATOMIC) != 0 and a.entry != 0 and of_launch(a.cluster).certifies != 0:
        return with_reader(a, kept)
    if (a.flags & STRONG) == 0:
        return 0
    return kept
