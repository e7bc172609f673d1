"""What a transfer carries beside what all have (Transfer.payload): a struct for each shape of the bytes that it is for."""

from __future__ import annotations

from typing import Any

from mmulator.codegen.ops import cast_ptr
from mmulator.codegen.types import Struct, u64
from mmulator.errors import InternalError
from mmulator.native.asynchrony.maps import Box
from mmulator.native.hooks.events import PayloadShape
from mmulator.native.state import PAYLOAD

# to, from_: addresses, as observers know them. kept: bits of the bytes of 16 that are copied. begin, end: bytes of the source
# there that need not be in memory; whole: 1 if they are.
BulkCopy = Struct("BulkCopy", [
    ("to", u64), ("from_", u64), ("bytes", u64), ("kept", u64), ("begin", u64), ("end", u64), ("whole", u64),
])  # fmt: skip
AsyncStore = Struct("AsyncStore", [("to", u64), ("bytes", u64), ("value", u64, PAYLOAD - 2)])  # of st.async and red.async
Response = Struct("Response", [("to", u64)])  # of clusterlaunchcontrol.try_cancel; an address of the shared window

PAYLOADS = {PayloadShape.BOX: Box, PayloadShape.PLAIN: BulkCopy, PayloadShape.WORDS: AsyncStore, PayloadShape.RESPONSE: Response}
if max(payload.size for payload in PAYLOADS.values()) > PAYLOAD * 8:
    raise InternalError(f"a transfer has room for {PAYLOAD * 8} bytes")


def payload_of(transfer: Any, shape: PayloadShape) -> Any:
    """Macro: the payload of a transfer whose bytes have a shape."""
    return cast_ptr(PAYLOADS[shape], transfer.field_address("payload"))
