"""The machine's address space, and the header of a frame in a warp's register file, as constants."""

# Addresses: bits 32 and up are a slot, the rest an offset. A buffer larger than 4 GiB takes several slots.
SLOT_SHIFT = 32
SLOT_SHARED, SLOT_LOCAL, SLOT_CONST, SLOT_PARAM = 1, 2, 3, 4
SLOT_GRID = 5  # what a cooperative grid's blocks share: %envreg1 and %envreg2 are its address
SLOT_FUNCTION = 8  # "address" of a function: this slot, and a place in the module's code
FUNCTION_BYTES = 16  # from one function to the next; C++ marks a pointer to a virtual function by bit 0
FIRST_GLOBAL_SLOT = 16
RANK_SHIFT = 24  # shared memory of CTA r of a cluster: its addresses have r from this bit on, in every CTA alike
SHARED_BASE = 1024  # the first byte a kernel owns: below it lie the 1 KB that CUDA reserves (measured on an NVIDIA H200)

# Frame header in the register file: where a call returns to, per lane.
HEADER_RETURN_PC, HEADER_RETURN_FRAME, HEADER_LOCAL = 0, 128, 256
HEADER_BYTES = 384
