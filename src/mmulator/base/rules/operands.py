"""Rules about operands that must be equal in several threads, or must have one of a few values. Their numbers begin at 500."""

from mmulator.base.rules.rule import Rule, Severity

_WGMMA = "PTX ISA 9.1, Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async"
_DESCRIPTOR = "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix: Matrix Descriptor Format"
_SPARSE = "PTX ISA 9.1, Sparse matrix storage"
_SCALING = "PTX ISA 9.1, Block Scaling for mma.sync"
_INSTRUCTION = "PTX ISA 9.1, TensorCore 5th Generation Family Instructions: Instruction descriptor"
_STORAGE = "PTX ISA 9.1, Matrix Storage for WMMA"
_MOVES = "PTX ISA 9.1, Warp-level Matrix Load Instruction: wmma.load; Warp-level Matrix Store Instruction: wmma.store"
_FRAGMENTS = "PTX ISA 9.1, Matrix Fragments for WMMA"
_MULTIPLY = "PTX ISA 9.1, Warp-level Matrix Multiply-and-Accumulate Instruction: wmma.mma"

WGMMA_OPERAND = Rule(
    500, "wgmma-operand-differs", Severity.ERROR, "threads of a warpgroup give a wgmma different operands", _WGMMA,
    "All threads of a warpgroup execute the same wgmma.mma_async: the contents of its matrix descriptors, and scale-d, must be "
    "the same in all warps and lanes. A chip takes them from one thread, and which one is not said.",
    "compute the operand from values that all 128 threads share: not from the lane or the number of the warp",
    faults="WGMMA_SCALE",
)  # fmt: skip
WMMA_OPERAND = Rule(
    501, "wmma-operand-differs", Severity.ERROR, "lanes of a warp give a wmma.load or wmma.store different operands", _MOVES,
    "wmma.load and wmma.store are undefined unless all threads of the warp give the same p and the same stride: the "
    "instruction itself knows which lane accesses which element.",
    "pass the address of the matrix, not that of the lane's own elements",
)  # fmt: skip
SELECTOR = Rule(
    502, "scale-selector-differs", Severity.ERROR, "lanes of a warp give different byte-id or thread-id", _SCALING,
    "byte-id and thread-id of a block-scaled mma say which bytes of which threads hold the scale factors; all threads of the "
    "warp must say the same.",
    "compute the selectors from values that the whole warp shares, or write constants",
)  # fmt: skip
SELECTOR_RANGE = Rule(
    503, "scale-selector-out-of-range", Severity.ERROR, "byte-id or thread-id is none of the values that the shape allows",
    _SCALING,
    "byte-id is 0 for .scale_vec::4X, 0 or 2 for 2X, 0 to 3 for 1X; thread-id-a is 0 or 1, thread-id-b 0 to 3. Of other values "
    "in a register ptxas cannot tell, and what a chip then reads is not defined.",
    "mask the selector to the values that the instruction's .scale_vec allows",
)  # fmt: skip
METADATA = Rule(
    510, "sparse-metadata-invalid", Severity.ERROR, "sparsity metadata that the element type does not allow", _SPARSE,
    "A nibble of metadata names the two elements of a chunk that are kept. 0b0000, 0b0101, 0b1010 and 0b1111 name one twice, "
    "which is undefined; for tf32 only 0b0100 and 0b1110 mean something.",
    "check how the metadata was compressed, and that each lane holds the word that the sparsity selector makes it contribute",
)  # fmt: skip
ORDER = Rule(
    511, "sparse-metadata-unordered", Severity.ERROR, "metadata of ::ordered_metadata names elements in falling order", _SPARSE,
    "mma.sp::ordered_metadata requires the two indices of each nibble to rise from the least significant bit on: 0b0100, 0b1000, "
    "0b1001, 0b1100, 0b1101 and 0b1110 are defined, all else is not.",
    "let the smaller index be in the low two bits, and the elements of A in the same order",
)  # fmt: skip
UNLISTED = Rule(
    514, "sparse-metadata-unlisted", Severity.NOTE, "metadata of an mma.sp with FP8 names elements in falling order", _SPARSE,
    "For FP8, FP6 and FP4 the text lists 0b0100, 0b1000, 0b1001, 0b1100, 0b1101 and 0b1110 as the defined nibbles, and does not "
    "say that this holds for mma.sp::ordered_metadata alone, as it does for all other types. wgmma takes either order.",
    "let the smaller index be in the low two bits, or take mma.sp::ordered_metadata",
)  # fmt: skip
SPARSE_SELECTOR = Rule(
    512, "sparse-selector-out-of-range", Severity.ERROR, "a sparsity selector that the shape of an mma.sp does not have", _SPARSE,
    "The sparsity selector says which threads of each four contribute metadata. It is 0 to 3 where one thread does, 0 or 1 where "
    "two do, 0 where all four do. ptxas takes 0 to 3 for every shape; an H200 ends the launch with an illegal instruction.",
    "use a selector that the shape has: 0 or 1 for m16n8k32 of .f16, and hold the metadata in the lanes that it names",
    static=True, faults="SPARSE_SELECTOR",
)  # fmt: skip
INSTRUCTION_DESCRIPTOR = Rule(
    513, "tensor-instruction-descriptor", Severity.ERROR, "an instruction descriptor that its tcgen05.mma does not take",
    _INSTRUCTION,
    "The instruction descriptor says the types, the shape and the rest of what the name of a tcgen05.mma leaves open. Kind, .ws, "
    ".sp and .cta_group decide which values its fields may have; reserved bits are 0. ptxas checks nothing of it.",
    "mmulator descriptor idesc shows the fields of a word, and makes a word of fields",
    static=True, faults="TENSOR_INSTRUCTION",
)  # fmt: skip
ADDRESS = Rule(
    520, "wmma-address-misaligned", Severity.ERROR, "p of a wmma.load or wmma.store is not aligned to the fragment", _STORAGE,
    "Every row (or column, whichever is the leading dimension) must begin at a multiple of the fragment's size: 32 bytes for the "
    "A, B of f16 and the accumulators of f32, less for smaller fragments.",
    "let tiles begin at multiples of 16 elements, and declare shared memory with .align 32",
)  # fmt: skip
STRIDE = Rule(
    521, "wmma-stride-misaligned", Severity.ERROR, "the stride of a wmma.load or wmma.store breaks the alignment of its rows",
    _STORAGE,
    "The stride is in elements; in bytes it must be a multiple of the fragment's size, so that every row begins aligned. What "
    "is no multiple of 16 bytes (or of a smaller fragment) is wrong by CUDA's own description of wmma, too.",
    "pad rows by whole multiples of 16 bytes, better of 32",
)  # fmt: skip
SHORT_STRIDE = Rule(
    522, "wmma-stride-too-small", Severity.ERROR, "the stride of a wmma.load or wmma.store is less than a row", _MOVES,
    "A stride lower than the default, the extent of the leading dimension, is undefined: rows would overlap.",
    "the stride is the leading dimension of the whole matrix, in elements (not bytes)",
)  # fmt: skip
SPACE = Rule(
    523, "wmma-address-space", Severity.ERROR, "wmma.load or wmma.store of memory that is neither global nor shared", _MOVES,
    "A generic address given to wmma.load and wmma.store must point to .global or .shared memory. Local memory is each thread's "
    "own, so it holds no matrix of a warp.",
    "copy the matrix to shared memory first: a local array, also one that the compiler made of a C++ array, is not enough",
)  # fmt: skip
RESERVED = Rule(
    540, "wgmma-descriptor-reserved-bits", Severity.WARNING, "a matrix descriptor with bits set that belong to no field",
    _DESCRIPTOR,
    "Bits 14-15, 30-31, 46-48 and 52-61 of a matrix descriptor belong to no field. A field that overflows into them (an address "
    "that was not masked to 18 bits, an offset that was added too high) names another place than was meant.",
    "encode each field as (x & 0x3FFFF) >> 4",
)  # fmt: skip
BASE_OFFSET = Rule(
    541, "wgmma-base-offset", Severity.WARNING, "base offset and start address of a swizzled matrix do not fit", _DESCRIPTOR,
    "Base offset is 0 where the swizzling pattern begins at a multiple of 1024, 512 or 256 bytes (128-, 64-, 32-byte swizzle), "
    "else (pattern start >> 7) & 7. Here the start address is not in the first row of the pattern that the base offset says, so "
    "that either the base offset is wrong, or the matrix is meant to begin in the middle of a pattern.",
    "align the matrix in shared memory to 1024 bytes, or encode (start >> 7) & 7 as base offset",
)  # fmt: skip
TILE_SWIZZLE = Rule(
    542, "tile-swizzle-differs", Severity.ERROR, "a product reads a tile with another swizzle than it was copied with",
    "PTX ISA 9.1, Swizzling Modes; Asynchronous Warpgroup Level Matrix Shared Memory Layout: Swizzling modes",
    "A tensor copy places the 16-byte chunks of a tile as the swizzle of its tensor map says. wgmma looks for them where bits "
    "62-63 of its matrix descriptor say. Where the two differ it multiplies other elements than those that were placed there: "
    "nothing is undefined, and the result is wrong. Tensor copies "
    "take the swizzle from the address in shared memory, so the base offset that fits what they copied is 0.",
    "give both the same swizzle: CU_TENSOR_MAP_SWIZZLE_NONE, 32B, 64B, 128B of the map are 0, 3, 2, 1 in bits 62-63 of the "
    "descriptor; mmulator descriptor finds the other fields",
)  # fmt: skip
SWIZZLE_UNLIKE = Rule(
    543, "tile-swizzle-unlike", Severity.WARNING,
    "a tile is stored, or read in part, with another swizzle than it was copied with",
    "PTX ISA 9.1, Swizzling Modes",
    "A tensor copy places the 16-byte chunks of a tile as the swizzle of its tensor map says, and a tensor store looks for them "
    "where its own map says. If the two differ, chunks of each row are exchanged. So it is with wgmma and its matrix descriptor; "
    "here both swizzles leave the chunks that it reads in the same places.",
    "give both the same swizzle",
)  # fmt: skip
LAYOUT = Rule(
    544, "matrix-descriptor-layout", Severity.WARNING, "a matrix descriptor by which no matrix can lie in shared memory",
    "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix: Strides; Canonical Layouts",
    "Start address, leading and stride byte offset and swizzle of a matrix descriptor say where each element lies. Here two "
    "elements lie in the same bytes, or the matrix leaves the atom of the swizzle in which it begins: the product reads other "
    "elements than are meant. `mmulator descriptor check` says the same of the word.",
    "compare the fields with `mmulator descriptor encode`",
)  # fmt: skip
MISPLACED = Rule(
    545, "matrix-descriptor-misplaced", Severity.ERROR, "a matrix descriptor that does not fit the tile of a tensor copy",
    "PTX ISA 9.1, Asynchronous Warpgroup Level Matrix: Strides; Canonical Layouts; Swizzling Modes",
    "A tensor copy places each row of its box once, one after another. This matrix descriptor reads bytes of what it brought as "
    "two elements, or goes on in an atom of the swizzle in which the row does not: the product multiplies other elements than "
    "those that were placed there. Nothing is undefined, and the result is wrong. A stride of 0, by which the same rows are read "
    "again, and tiles that threads wrote are a warning (matrix-descriptor-layout): they may be meant so.",
    "compare the fields with `mmulator descriptor encode`",
)  # fmt: skip
ROWS = Rule(
    524, "wmma-row-misaligned", Severity.WARNING, "rows of a wmma matrix are aligned to 16 bytes, not to the fragment", _STORAGE,
    "The PTX ISA asks that every row begins at a multiple of the fragment's size, 32 bytes for A and B of f16; CUDA's "
    "description of load_matrix_sync asks for a stride of a multiple of 16 bytes. Chips so far take the latter.",
    "pad rows by 32 bytes (16 elements of f16), which obeys both",
)  # fmt: skip
FRAGMENT = Rule(
    530, "wmma-fragment-mismatch", Severity.ERROR, "a fragment is used as another than it is", f"{_MULTIPLY}; wmma.store",
    "wmma.mma and wmma.store take fragments of their own shape and type, A and B in the layout that they were loaded with: "
    ".shape, .alayout, .blayout and the types must match those of the instruction that made the fragment. Which lane holds which "
    "element differs, and from chip to chip.",
    "load the fragment with the shape, layout and type that it is used with; go through memory to change them",
)  # fmt: skip
CONVERTED = Rule(
    531, "wmma-fragment-converted", Severity.ERROR, "accumulators are converted between .f16 and .f32", _FRAGMENTS,
    "Type conversion between .f16 and .f32 accumulator fragments is not supported in either direction: the result is "
    "undefined, even if the order of elements remains unchanged.",
    "store the accumulator in its own type and convert in memory, or accumulate in the other type",
)  # fmt: skip
REORDERED = Rule(
    532, "wmma-fragment-reordered", Severity.ERROR, "the elements of a fragment are used in another order", _FRAGMENTS,
    "Registers of a fragment can be read and written one by one, but the order of the elements must not be changed.",
    "use the registers in the order in which they were loaded; go through memory to move elements",
)  # fmt: skip
UNEVEN = Rule(
    533, "wmma-fragment-uneven", Severity.ERROR, "elements of a fragment are not all operated on alike", _FRAGMENTS,
    "All elements of a fragment must be operated on uniformly across threads, with the same parameters: which elements a lane "
    "holds is not said.",
    "apply the operation to all registers in all lanes; what differs by row or column goes through memory",
)  # fmt: skip
SPACES = Rule(
    550, "address-space", Severity.ERROR, "an address of another state space than the instruction's",
    "PTX ISA 9.1, State Spaces; Generic Addressing",
    "An instruction that names a state space takes addresses of it: offsets for .shared, .local, .const and .param, which have "
    "32 bits; ldmatrix, stmatrix and the like also by a generic address work on shared memory alone.",
    "cvta.to.SPACE makes an address of the space out of a generic one, cvta the other way",
    faults="WRONG_SPACE NOT_SHARED BEYOND_SPACE OTHER_CTA NO_CLUSTER",
)  # fmt: skip
BOUNDS = Rule(
    551, "memory-out-of-bounds", Severity.ERROR, "an access to memory that is not the kernel's",
    "PTX ISA 9.1, Data Movement and Conversion Instructions",
    "An access reads and writes bytes of the launch's arguments, of variables, of shared or of local memory, and writes none "
    "that are constant. Next to an array a chip has something else, or faults.",
    "check the index arithmetic and the mask of the access",
    faults="OUT_OF_BOUNDS SHARED_OUT_OF_BOUNDS LOCAL_OUT_OF_BOUNDS NULL_POINTER READ_ONLY NO_SUCH_RANK",
)  # fmt: skip
ALIGNMENT = Rule(
    552, "memory-misaligned", Severity.ERROR, "an address that is no multiple of the access's size",
    "PTX ISA 9.1, Operands: Addresses as Operands",
    "An access of n bytes needs an address that is a multiple of n, a vector that of its whole size.",
    "check byte offsets, and the .align of the variable",
    faults="MISALIGNED",
)  # fmt: skip
DESCRIPTOR = Rule(
    553, "wgmma-descriptor-out-of-bounds", Severity.ERROR, "a matrix descriptor leads out of shared memory", _DESCRIPTOR,
    "All of the matrix that start address, leading and stride byte offset of a descriptor say lies in the shared memory of the "
    "block.",
    "check the start address, offsets and swizzle of the matrix descriptor, and the shared bytes of the launch",
    faults="WGMMA_ADDRESS",
)  # fmt: skip
BULK_SIZE = Rule(
    554, "bulk-size-invalid", Severity.ERROR, "the size of a bulk copy or reduction is no multiple of 16 bytes",
    "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async.bulk",
    "The size of a bulk copy, reduction or prefetch must be a multiple of 16 bytes. Its addresses must be, too.",
    "round the size up and the buffers too, or copy what is left over with other instructions",
    faults="BULK_SIZE BULK_IGNORED",
)  # fmt: skip
TENSOR_MAP = Rule(
    555, "tensormap-invalid", Severity.ERROR, "the map of a tensor copy is not valid, or does not fit the instruction",
    "PTX ISA 9.1, Tensors: Tensor-map",
    "A tensor copy takes rank and mode from the instruction, and all else from the tensor map. The map must be one that CUDA's "
    "driver would encode, and must have as many dimensions as the instruction.",
    "encode it with mm.TensorMap, or cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col, and pass all 128 bytes",
    faults="TENSOR_MAP",
)  # fmt: skip
SOURCE_SIZE = Rule(
    556, "copy-source-size", Severity.ERROR, "src-size of a cp.async is larger than its cp-size",
    "PTX ISA 9.1, Data Movement and Conversion Instructions: cp.async",
    "Of cp-size bytes src-size ones are copied, and the others become zeros. A src-size larger than cp-size is undefined: most "
    "often the bytes that are left of an array, which were not limited, or became negative.",
    "limit it on both sides: src-size = min(max(bytes left, 0), cp-size)",
)  # fmt: skip
ROW_ADDRESS = Rule(
    557, "ldmatrix-address-invalid", Severity.ERROR, "lanes whose addresses ldmatrix does not use give invalid ones to sm_75",
    "PTX ISA 9.1, Warp Level Matrix Multiply-Accumulate Instructions: ldmatrix",
    "ldmatrix.x1 takes the addresses of lanes 0 to 7, .x2 those of lanes 0 to 15. For sm_75 all threads must contain valid "
    "addresses, else the behaviour is undefined.",
    "give lanes 16 to 31 the addresses of lanes 0 to 15, as the specification says for sm_75",
)  # fmt: skip
LARGE = Rule(
    558, "operand-out-of-range", Severity.ERROR, "an operand is larger than the instruction takes",
    "PTX ISA 9.1, Integer Arithmetic Instructions: fns",
    "The base of fns is the number of a bit, 0 to 31; the behaviour is undefined otherwise. A chip gives some value.",
    "limit the operand, or let the lanes that have none skip the instruction",
)  # fmt: skip
