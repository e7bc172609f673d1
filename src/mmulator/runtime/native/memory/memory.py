"""Loads and stores between memory, through the windows (windows.py), and registers."""

from functools import cache
from typing import Any

from mmulator.base.codegen.lang import Native, unrolled
from mmulator.base.codegen.ops import (
    bits_mask,
    bits_of,
    cast_ptr,
    concat,
    insert,
    iota,
    leading_zeros,
    load,
    mask_bits,
    masked_load,
    masked_store,
    prefetch,
    select,
    shuffle,
    stack,
    store,
    trailing_zeros,
)
from mmulator.base.codegen.types import Ty, ptr, ptr_to, u8, u16, u32, u64
from mmulator.base.codegen.values import Value, extract, splat
from mmulator.runtime.native.hooks.events import READ, WRITE
from mmulator.runtime.native.memory.rows import apart
from mmulator.runtime.native.memory.shapes import Shape, local_function, origin_function
from mmulator.runtime.native.memory.windows import NAMES, SPACES
from mmulator.runtime.native.state import FULL, Warp

ELEMENT: dict[int, Ty] = {1: u8, 2: u16, 4: u32, 8: u64}
U64, U32, HALF = u64.vec(32), u32.vec(32), u32.vec(16)
_WORD = {**ELEMENT, 16: u64.vec(2), 32: u64.vec(4)}


# Of a vector the elements of a lane lie together in memory, and those of all lanes in the register file.
def parted(image: list[Value]) -> list[Value]:
    """Macro: one vector for each element, from vectors as they lie in memory. Their number is a power of two."""
    if len(image) == 1:
        return image
    pairs = [*zip(image[::2], image[1::2])]
    even, odd = (parted([shuffle(a, b, range(first, 64, 2)) for a, b in pairs]) for first in (0, 1))
    return [one for both in zip(even, odd) for one in both]


def joined(elements: list[Value]) -> list[Value]:
    """Macro: vectors as they lie in memory, from one vector for each element."""
    if len(elements) == 1:
        return elements
    even, odd = joined(elements[::2]), joined(elements[1::2])
    return [shuffle(a, b, [n // 2 + n % 2 * 32 for n in range(half, half + 32)]) for a, b in zip(even, odd) for half in (0, 32)]


def vectors(ty: Ty, place: Value, count: int) -> list[Value]:
    """Macro: `count` contiguous vectors of a type."""
    return [load(ty, cast_ptr(ty, place), c) for c in range(count)]


def put(values: list[Value], place: Value) -> None:
    """Macro: store contiguous vectors."""
    for c, value in enumerate(values):
        store(value, cast_ptr(value.ty, place), c)


LINE = 64  # bytes of the host's caches
AHEAD = 2048  # bytes: with three arrays, less than a fifth of the host's first cache


def ahead(place: Value, bytes: int, write: bool = False) -> None:
    """Macro: prefetch memory behind the bytes that are accessed now. Kernels that stream through long arrays reach it soon; the
    host does not predict that, because accesses alternate between arrays.
    """
    for at in range(0, bytes, LINE):
        prefetch(place + (AHEAD + at), write)


def beside(values: list[Value]) -> Value:
    """Macro: numbers, or vectors, as one vector."""
    if values[0].ty.lanes:
        return concat(values)
    out = splat(values[0], len(values))
    for n, value in enumerate(values[1:], 1):
        out = insert(out, n, value)
    return out


def gathered(element: Ty, count: int, begin: Value, places: Value) -> list[Value]:
    """Macro: `count` elements for each lane, from its place behind `begin`, in the order of contiguous memory."""
    word = element.vec(count) if count > 1 else element
    words = [load(word, begin + places[n], align=element.size) for n in range(32)]
    return [beside(words[n : n + 32 // count]) for n in range(0, 32, 32 // count)]


def by_eights(a: Value, bytes: int) -> Value:
    """Macro: whether the bytes of each eight lanes are contiguous, as in a tile's row, if those of the first two lanes are."""
    return apart(a, bytes) == 0


def take_eights(element: Ty, count: int, begin: Value, places: Value) -> list[Value]:
    """Macro: `gathered` for lanes that are contiguous by eights."""
    if count >= 4:
        return [v for n in range(0, 32, 8) for v in vectors(element.vec(32), begin + places[n], count // 4)]
    rows = [load(element.vec(8 * count), begin + places[n], align=1) for n in range(0, 32, 8)]
    return [beside(rows[n : n + 4 // count]) for n in range(0, 4, 4 // count)]


def by_turns(a: Value) -> Value:
    """Macro: whether the words of the even lanes are contiguous, and those of the odd lanes."""
    heads = shuffle(a, None, [n & 1 for n in range(32)])
    return mask_bits((a - heads) != ((iota(U64) >> 1) << 2)) == 0


def taking_turns(even: Value, odd: Value) -> Value:
    """Macro: one vector from those of the even and the odd lanes."""
    return shuffle(even, odd, [n // 2 + n % 2 * 16 for n in range(32)])


def put_eights(image: list[Value], count: int, begin: Value, places: Value) -> None:
    """Macro: store elements of lanes that are contiguous by eights."""
    for n in range(4):
        if count >= 4:
            put(image[n * (count // 4) :][: count // 4], begin + places[8 * n])
        else:
            first = 8 * count * n
            part = shuffle(image[first // 32], None, range(first % 32, first % 32 + 8 * count))
            store(part, begin + places[8 * n], align=1)


@cache
def look_up(space: str, bytes: int, access: int) -> Native:
    """A function that finds the shape of the lanes' addresses, and the place of their bytes on the host: `out` plus `places`,
    which are the addresses, except for local memory.
    """
    local = space == "local"
    find: Any = local_function(bytes, access) if local else origin_function(space, bytes, access)

    def shape_of(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), site: u32, out: ptr_to(ptr), places: ptr_to(u64)) -> u32:
        a = load(U64, at)
        if local:
            return find(w, mask, a, site, out, places)
        low = trailing_zeros(mask)
        return find(w, mask, u64(low), at[low], a, site, out)

    return Native(shape_of, f"shape_of_{NAMES[space]}_{bytes}_{access}", inline=True)


@cache
def load_function(space: str, size: int, count: int) -> Native:
    """A function that loads `count` elements of `size` bytes for each lane; element c of lane l goes to dst[32 * c + l]. The
    result of idle lanes is arbitrary.
    """
    translate, element, bytes = SPACES[space], ELEMENT[size], size * count
    word, vector, far, local = _WORD[bytes], element.vec(32), space in ("global", "generic"), space == "local"
    look: Any = look_up(space, bytes, READ)
    masked = count == 1 and size >= 4  # what is read in one piece with a mask

    def load_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), dst: ptr, site: u32) -> None:
        if mask == 0 or w.cta.fault != 0:
            return
        image = stack(word, 32)
        source = cast_ptr(u8, image)
        origin = stack(ptr, 3)
        places = stack(u64, 32) if local else at
        shape = look(w, mask, at, site, origin, places)
        begin = origin[0]
        low = trailing_zeros(mask)
        first = begin + places[low]
        if shape == Shape.ONE:
            one = cast_ptr(element, first)
            put([splat(one[c], 32) for c in unrolled(count)], dst)
            return
        if masked:
            if shape == Shape.ROW and mask != FULL:
                put([masked_load(vector, first + (u64(0) - u64(low) * bytes), bits_mask(mask))], dst)
                return
        left = mask
        if shape == Shape.ROW and mask == FULL:
            source = first
            if far:
                ahead(first, 32 * bytes)
        elif shape != Shape.UNKNOWN and mask == FULL:
            if not local:
                if places[1] - places[0] == bytes:
                    if by_eights(load(U64, places), bytes):
                        put(parted(take_eights(element, count, begin, places)), dst)
                        return
            put(parted(gathered(element, count, begin, places)), dst)
            return
        elif shape != Shape.UNKNOWN:
            for lane in bits_of(left):
                store(load(word, begin + places[lane]), image, lane)
        else:
            host = stack(ptr, 32)
            for lane_ in bits_of(translate(w, mask, at, bytes, READ, site, host)):
                store(load(word, host[lane_]), image, lane_)
        put(parted(vectors(vector, source, count)), dst)

    return Native(load_, f"load_{NAMES[space]}_{size}x{count}")


@cache
def load_word_function(space: str) -> Native:
    """A function that loads one element of 32 bits for each lane into vector registers; it uses the stack only for scattered
    lanes.

    Measured against `load_function`, in a loop of loads: words in a row take 22 % less time, every other word 30 % less, lanes
    64 bytes apart 5 % (global memory) to 9 % (shared memory) more.
    """
    slow, look, far = load_function(space, 4, 1), origin_function(space, 4, READ), space in ("global", "generic")

    def load_word(w: ptr_to(Warp), mask: u32, a: U64, site: u32) -> U32:
        if mask == 0 or w.cta.fault != 0:
            return U32(0)
        places = stack(u64, 32)
        low = u32(0)
        first = extract(a, 0)
        if (mask & 1) == 0:
            store(a, places)
            low = trailing_zeros(mask)
            first = places[low]
        origin = stack(ptr, 3)
        shape = look(w, mask, u64(low), first, a, site, origin)
        begin = origin[0]
        if shape == Shape.ONE:
            return splat(load(u32, begin + first), 32)
        if shape == Shape.ROW:
            if mask != FULL:
                return masked_load(U32, begin + (first - u64(low) * 4), bits_mask(mask))
            if far:
                ahead(begin + first, 128)
            return load(U32, begin + first)
        if shape == Shape.UNKNOWN:
            image = stack(u32, 32)
            store(a, places)
            slow(w, mask, places, image, site)
            return load(U32, image)
        step = extract(a, 1) - extract(a, 0) if (mask & 3) == 3 else u64(8)
        if step == 8:  # every other word, perhaps, of cells of two
            cells = first - u64(low) * 8
            if (mask & mask_bits((a - iota(U64, 0, 8)) != cells)) == 0:
                if u64(begin) + cells + (u64(32 - leading_zeros(mask)) * 8) <= u64(origin[2]):
                    return U32(masked_load(U64, begin + cells, bits_mask(mask), align=4))
        elif step == 4 and mask == FULL:  # eight lanes in a row, perhaps, and eight more elsewhere
            if by_eights(a, 4):
                store(a, places)
                return take_eights(u32, 1, begin, places)[0]
        elif mask == FULL and extract(a, 2) - first == 4:  # two rows, perhaps, whose lanes take turns
            if by_turns(a):
                return taking_turns(load(HALF, begin + first), load(HALF, begin + extract(a, 1)))
        store(select(bits_mask(mask), a, U64(first)), places)
        return gathered(u32, 1, begin, places)[0]

    return Native(load_word, f"load_word_{NAMES[space]}")


@cache
def words_function(space: str, count: int) -> Native:
    """A function that loads `count` neighbouring words of 32 bits for each lane; word c of lane l goes to dst[32 * c + l].

    Returns 0 if it has loaded nothing, because lanes are not in one window or there is a mistake: then each is loaded by itself.
    """
    look = origin_function(space, 4 * count, READ, align=4)
    pieces = [(c, 4) for c in range(0, count & -4, 4)] + [(count & -2 * size, size) for size in (2, 1) if count & size]

    def load_words(w: ptr_to(Warp), mask: u32, a: U64, dst: ptr, site: u32) -> u32:
        if mask == 0 or w.cta.fault != 0:
            return u32(0)
        places = stack(u64, 32)
        store(a, places)
        low = trailing_zeros(mask)
        first = places[low]
        origin = stack(ptr, 3)
        shape = look(w, mask, u64(low), first, a, site, origin)
        begin = origin[0]
        words = cast_ptr(u32, dst)
        if shape == Shape.UNKNOWN:
            return u32(0)
        if shape == Shape.ONE:
            source = cast_ptr(u32, begin + first)
            for c in unrolled(count):
                store(splat(source[c], 32), words, 32 * c)
        elif mask == FULL and mask_bits((a - iota(U64, 0, 4)) != first) == 0:
            for c in unrolled(count):
                store(load(U32, begin + first, 4 * c), words, 32 * c)
        else:
            store(select(bits_mask(mask), a, U64(first)), places)
            for c, size in pieces:
                put(parted(gathered(u32, size, begin + 4 * c, places)), cast_ptr(u8, dst) + 128 * c)
        return u32(1)

    return Native(load_words, f"load_words_{NAMES[space]}_{count}")


@cache
def kept_function(space: str) -> Native:
    """A function that returns a word that `words_function` has loaded, or if `there` is 0 loads it."""
    slow: Any = load_word_function(space)

    def load_kept(w: ptr_to(Warp), mask: u32, a: U64, there: u32, kept: ptr, site: u32) -> U32:
        if there != 0:
            return load(U32, kept)
        return slow(w, mask, a, site)

    return Native(load_kept, f"load_kept_{NAMES[space]}")


@cache
def store_function(space: str, size: int, count: int) -> Native:
    """A function that stores `count` elements of `size` bytes for each lane. If lanes store to one address, the highest lane
    wins.
    """
    translate, element, bytes = SPACES[space], ELEMENT[size], size * count
    word, vector, far, local = _WORD[bytes], element.vec(32), space in ("global", "generic"), space == "local"
    look: Any = look_up(space, bytes, WRITE)
    masked = count == 1 and size >= 4

    def store_(w: ptr_to(Warp), mask: u32, at: ptr_to(u64), src: ptr, site: u32) -> None:
        if mask == 0 or w.cta.fault != 0:
            return
        image = stack(word, 32)
        target = cast_ptr(u8, image)
        origin = stack(ptr, 3)
        places = stack(u64, 32) if local else at
        shape = look(w, mask, at, site, origin, places)
        begin = origin[0]
        if shape == Shape.ONE:
            last = 31 - leading_zeros(mask)
            one = cast_ptr(element, begin + places[last])
            for c in unrolled(count):
                one[c] = cast_ptr(element, src)[last + 32 * c]
            return
        if masked:
            if shape == Shape.ROW and mask != FULL:
                low = trailing_zeros(mask)
                masked_store(load(vector, src), begin + (places[low] - u64(low) * bytes), bits_mask(mask))
                return
        left = mask
        whole = shape == Shape.ROW and mask == FULL
        if whole:
            target = begin + places[0]
            if far:
                ahead(target, 32 * bytes, True)
        elif shape == Shape.UNKNOWN:
            host = stack(ptr, 32)
            left = translate(w, mask, at, bytes, WRITE, site, host)
        if not local:
            if shape == Shape.SPREAD and mask == FULL and places[1] - places[0] == bytes:
                if by_eights(load(U64, places), bytes):
                    put_eights(joined(vectors(vector, src, count)), count, begin, places)
                    return
        put(joined(vectors(vector, src, count)), target)
        if whole:
            return
        if shape != Shape.UNKNOWN:
            while left != 0:
                lane = trailing_zeros(left)
                left = left & (left - 1)
                store(load(word, image, lane), begin + places[lane])
            return
        for lane_ in bits_of(left):
            store(load(word, image, lane_), host[lane_])

    return Native(store_, f"store_{NAMES[space]}_{size}x{count}")


MEMORY = [*SPACES.values()]
