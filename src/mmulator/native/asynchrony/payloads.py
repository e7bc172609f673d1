"""Data of a transfer beside the fields of all transfers (Transfer.payload): a struct for each shape of its bytes."""

from typing import Any

from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import Struct, ptr_to, u32, u64
from mmulator.errors import InternalError
from mmulator.native.asynchrony.maps import Box
from mmulator.native.hooks.events import PayloadShape
from mmulator.native.matrix.tensor_state import TensorTable
from mmulator.native.state import PAYLOAD

# to, from_: addresses, as observers know them. kept: bits of the bytes of 16 that are copied. begin, end: bytes of the source
# there that need not be in memory; whole: 1 if they are.
BulkCopy = Struct("BulkCopy", [
    ("to", u64), ("from_", u64), ("bytes", u64), ("kept", u64), ("begin", u64), ("end", u64), ("whole", u64),
])  # fmt: skip
AsyncStore = Struct("AsyncStore", [("to", u64), ("bytes", u64), ("value", u64, PAYLOAD - 2)])  # of st.async and red.async
Response = Struct("Response", [("to", u64)])  # of clusterlaunchcontrol.try_cancel; an address of the shared window
# tcgen05.mma, cp and shift. mode: rows of tcgen05.cp. a: a matrix descriptor, or with in_cells an address in tensor memory.
# moved_up: 1 for .ashift. zeros: a zero-column mask descriptor.
TensorWork = Struct("TensorWork", [
    ("table", ptr_to(TensorTable)), ("a", u64), ("b", u64), ("d", u32), ("mode", u32), ("pair", u32), ("in_cells", u32),
    ("metadata", u32), ("scale_a", u32), ("scale_b", u32), ("adds", u32), ("divides", u32), ("lanes_off", u32, 8),
    ("moved_up", u32), ("padding", u32), ("zeros", u64),
])  # fmt: skip

PAYLOADS = {
    PayloadShape.BOX: Box, PayloadShape.PLAIN: BulkCopy, PayloadShape.WORDS: AsyncStore, PayloadShape.RESPONSE: Response,
    PayloadShape.TENSOR: TensorWork,
}
if max(payload.size for payload in PAYLOADS.values()) > PAYLOAD * 8:
    raise InternalError(f"a transfer has room for {PAYLOAD * 8} bytes")


def payload_of(transfer: Any, shape: PayloadShape) -> Any:
    """Macro: the payload of a transfer whose bytes have a shape."""
    return cast_ptr(PAYLOADS[shape], transfer.field_address("payload"))
