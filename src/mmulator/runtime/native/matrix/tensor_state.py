"""State of tensor memory and of tcgen05.mma: sizes, and the table of an instruction with its descriptor."""

from enum import IntEnum

from mmulator.base.codegen.types import Struct, ptr, u32, u64

# Tensor memory of a CTA, which is allocated in units of columns.
TENSOR_LANES, TENSOR_COLUMNS, TENSOR_UNIT = 128, 512, 32
QUARTER = 32  # lanes that move together, of a warp
ODD = 1 << 16  # says of a fault at an address that it is that of metadata, in an odd column
BY_ADDRESS = 1 << 52  # bit of a matrix descriptor: the leading byte offset is an address
TENSOR_ROW = TENSOR_COLUMNS * 4 + 64  # bytes of a lane, and some, so that few lanes share sets of the host's caches
TENSOR_SCRATCH = 1 << 20  # bytes in which tcgen05.mma computes
TENSOR_STEPS = 8  # tcgen05.mma that are one product, at most

class Unpack(IntEnum):
    """The way in which elements of a matrix that tcgen05.mma multiplies lie in bytes."""

    WHOLE = 0  # one after another, in bytes of their own
    PADDED_4 = 1  # 16 of 4 bits in each 16 bytes, then 8 bytes of padding
    PADDED_6 = 2  # 16 of 6 bits in each 16 bytes, then 4 bytes of padding
    PAIRS = 3  # two of 4 bits in each byte
    SHIFTED_4 = 4  # in bits 2 to 5 of a byte
    LOW_6 = 5  # in bits 0 to 5 of a byte


PADDING = {Unpack.PADDED_4: 8, Unpack.PADDED_6: 4}  # bytes at the end of each 16, which nobody reads
# What issued products count: multiply-accumulates, and how often each question that is open came up
# (runtime/launch/tensor_tables.py).
TALLIES = 1 + 31
PIECES = 4  # rectangles of an accumulator that lie together in tensor memory, at most
# Parts of TENSOR_SCRATCH, in bytes from its start. raw: an operand as it lies in memory. elements: an element after another.
# packed_a, packed_b: as the numerics twin takes them, of each step. c: an accumulator's piece, where it is not computed in
# its place.
TensorScratch = Struct("TensorScratch", [
    ("raw", u32), ("elements", u32), ("packed_a", u32), ("packed_b", u32), ("c", u32), ("index", u32), ("metadata", u32),
    ("scale_a", u32), ("scale_b", u32),
])  # fmt: skip
# What a tcgen05.mma and its instruction descriptor decide; Python fills it in (runtime/launch/tensor_tables.py).
TensorTable = Struct("TensorTable", [
    ("word", u32), ("mode", u32),  # the instruction descriptor; what the instruction itself says
    ("pack_a", u64), ("pack_b", u64), ("pack_b_rows", u64), ("dot", u64),  # functions of the numerics twin
    ("dot_steps", u64), ("steps", u32),  # 0 if there is none; how many instructions may be one product
    ("a_pack", u32), ("b_pack", u32),  # bytes from the packed A of a step to that of the next, and of B
    ("m", u32), ("n", u32), ("k", u32), ("stored", u32),  # rows in a CTA; elements along k of B, and of A as it is stored
    ("a_size", u32), ("b_size", u32),  # bytes of an element for the twin
    ("a_line", u32), ("b_line", u32),  # bytes of a row along k in shared memory; of A in tensor memory: a_cells
    ("a_cells", u32),
    ("a_unpack", u32), ("b_unpack", u32), ("a_cells_unpack", u32),
    ("a_across", u32), ("b_across", u32),  # whether M or N is contiguous
    ("a_row", u32), ("b_row", u32),  # bytes of a packed row of A; of a packed column of B
    ("flags", u32), ("d_bits", u32),
    ("pieces", u32), ("rows", u32), ("columns", u32),  # how many there are, and of each
    ("row", u32, PIECES), ("first", u32, PIECES), ("lane", u32, PIECES), ("column", u32, PIECES),
    ("upper", u32),  # whether the base lane may be 16
    ("width", u32),  # columns of tensor memory of D
    ("scales", u32), ("a_byte", u32), ("b_byte", u32),  # factors of a row; their first byte
    ("a_next", u32), ("b_next", u32), ("a_span", u32), ("b_span", u32),  # columns to the cells of factor 4; of all cells
    ("sparse", u32), ("places", ptr), ("cells", u32), ("selected", u32),  # IndexTable of a sparse A; columns of the metadata;
    # the first of them, from the address on
    ("scratch", TensorScratch),
    ("macs", u64), ("open", u32), ("open_cells", u32),  # TALLIES: of the product; masks of questions, those of A in cells
], functions=("pack_a", "pack_b", "pack_b_rows", "dot", "dot_steps"))  # fmt: skip
