"""Concepts around matrix instructions: a few sentences, a picture in text, and the commands that say more."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Topic:
    """A concept.

    name: one word.
    also: other spellings of it.
    text: sentences, a paragraph each.
    picture: lines.
    commands: (what it shows, how it is called) of each.
    page: of docs/.
    section: of the PTX ISA.
    """

    name: str
    also: tuple[str, ...]
    text: tuple[str, ...]
    picture: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    page: str
    section: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


TOPICS: tuple[Topic, ...] = (
    Topic(
        "swizzle", ("swizzling", "swizzles", "swizzle-mode"),
        ("A swizzle exchanges 16-byte pieces within rows of 32, 64 or 128 bytes of shared memory, so that the rows of a "
         "tile that are "
         "read together lie in different banks. It works on address bits: the 128-byte swizzle adds bits 7 to 9 without carry "
         "(xor) to bits 4 to 6; 64 bytes: 7 and 8 to 4 and 5; 32 bytes: 7 to 4.",
         "The tensor map that writes a tile and the descriptor, or the ldmatrix addresses, that read it must have the same "
         "one, and a "
         "tile begins at a multiple of 1024 bytes (128-byte swizzle), 512 (64) or 256 (32); else values are exchanged without "
         "an error."),
        ("128-byte swizzle: 16-byte pieces of 8 rows, and where they lie",
         "row 0   0 1 2 3 4 5 6 7", "row 1   1 0 3 2 5 4 7 6", "row 2   2 3 0 1 6 7 4 5", "row 3   3 2 1 0 7 6 5 4",
         "row 4   4 5 6 7 0 1 2 3", "row 5   5 4 7 6 1 0 3 2", "row 6   6 7 4 5 2 3 0 1", "row 7   7 6 5 4 3 2 1 0"),
        (("a tile in shared memory, drawn", "mmulator descriptor encode wgmma m64n128 f16 --swizzle 128B"),
         ("a tensor map's box", "mmulator tensormap draw --help")),
        "explanation/descriptors.md", "Shared Memory Matrix Layout",
    ),
    Topic(
        "descriptor", ("descriptors", "matrix-descriptor", "smem-descriptor"),
        ("A matrix descriptor is 64 bits that say where wgmma finds a matrix in shared memory: the start address, two "
         "strides and the swizzle. Which stride is which depends on whether the matrix is K-major.",),
        ("bits 0-13   start address >> 4", "bits 16-29  leading dimension byte offset >> 4",
         "bits 32-45  stride dimension byte offset >> 4", "bits 49-51  base offset",
         "bits 62-63  swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes"),
        (("the fields of one, and what is wrong", "mmulator descriptor decode 0x4000004000010040"),
         ("one for a tile", "mmulator descriptor encode --help"), ("checked against an instruction", "mmulator descriptor "
          "check --help")),
        "explanation/descriptors.md", "Matrix-Descriptor Format",
    ),
    Topic(
        "fragment", ("fragments", "matrix-fragment"),
        ("A matrix in registers is spread over the 32 lanes of a warp, or the 128 of a warpgroup; the part that a lane has "
         "is its "
         "fragment. Lane l has row l / 4 of an 8-row group, and elements that begin at column 2 * (l % 4).",),
        ("D of m16n8, 32 bits: rows 0, 1 and 8, and the lanes that have their elements",
         "row 0   lane 0: d0 d1 | lane 1: d0 d1 | lane 2: d0 d1 | lane 3: d0 d1",
         "row 1   lane 4: d0 d1 | lane 5: d0 d1 | lane 6: d0 d1 | lane 7: d0 d1",
         "row 8   lane 0: d2 d3 | lane 1: d2 d3 | lane 2: d2 d3 | lane 3: d2 d3"),
        (("who holds which element", "mmulator layout mma m16n8k16 f16 d"),
         ("one element", "mmulator layout wgmma m64n256 bf16 d --element 17,200")),
        "explanation/layouts.md", "Matrix Fragments for mma.m16n8k16 with floating point type",
    ),
    Topic(
        "proxy-fence", ("proxy", "async-proxy", "fence-proxy", "fence.proxy.async", "fence.proxy"),
        ("Loads and stores of threads go through the generic proxy; wgmma, bulk and tensor copies go through the asynchronous "
         "(async) proxy. What was written through one is seen through the other only behind a fence.proxy.async. The thread "
         "that wrote executes the fence, before the barrier that the issuing thread waits for. What a bulk copy brought "
         "needs no fence: threads that have waited for its mbarrier see it.",),
        ("every thread  st.shared, fence.proxy.async.shared::cta, bar.sync",
         "  -> thread 0  cp.async.bulk.global.shared::cta", "",
         "thread 0  cp.async.bulk.shared::cta.global, completes an mbarrier",
         "  -> every thread  mbarrier.try_wait, ld.shared   (no fence)"),
        (("the rules that are looked for", "mmulator explain proxies"), ("one of them", "mmulator explain proxy-fence-missing")),
        "how-to/sanitizer.md", "Async proxy",
    ),
    Topic(
        "mbarrier", ("mbar", "phase", "parity"),
        ("An mbarrier is 64 bits in shared memory that count the arrivals of threads and the bytes of asynchronous copies "
         "that are still missing. When both counts are 0 the phase is complete, the count begins anew, and the parity of the "
         "phase, 0 at first, changes. A wait names the parity of the phase that it waits for: 0, 1, 0, ... for a barrier that "
         "says `full`; 1, 0, 1, ... for one that says `empty`, so that the first wait does not sleep.",),
        ("init, count 1             phase 0 begins", "arrive.expect_tx 4096     0 arrivals and 4096 bytes are missing",
         "try_wait.parity 0         sleeps", "a copy writes 4096 bytes  phase 0 is complete, the wait ends; phase 1 begins",
         "try_wait.parity 1         sleeps until phase 1 is complete"),
        (("the rules that are looked for", "mmulator explain mbarriers"), ("one of them", "mmulator explain "
        "mbarrier-init-in-use")),
        "explanation/synchronization.md", "Parallel Synchronization and Communication Instructions: mbarrier",
    ),
    Topic(
        "sparsity", ("sparse", "2:4", "metadata", "structured-sparsity"),
        ("A sparse matrix A has at most 2 elements that are not zero among every 4 neighbours of a row (tf32: 1 of 2). A is "
         "stored with K / 2 columns, and metadata, two bits for each element, say in which of the 4 columns it stood. Of B only "
         "the rows of these columns are used.",),
        ("A      0 a 0 b | c 0 d 0", "stored a b c d", "index  1 3 | 0 2",
         "metadata 0b1000_1101 = 0x8d, the first index in the low bits"),
        (("which lanes give metadata", "mmulator sparse lanes --for 'mma.sp m16n8k32 f16'"),
         ("the words of a matrix", "mmulator sparse --help")),
        "explanation/layouts.md", "Sparse matrix storage",
    ),
    Topic(
        "bank", ("banks", "bank-conflict", "bank-conflicts", "conflicts"),
        ("Shared memory has 32 banks of 4 bytes; the bank of a byte is address / 4 % 32. Lanes of a warp that want different "
         "words of one bank take turns: an n-way conflict takes n times as long. Lanes that want the same word have no conflict. "
         "Rows of 128 bytes that are read by columns are the usual conflict: pad each row, or swizzle.",),
        ("address  0 4 8 ... 124 | 128 132 ...", "bank     0 1 2 ...  31 |   0   1 ..."),
        (("conflicts of a matrix's rows and columns", "mmulator descriptor check --help   (--access)"),
         ("what avoids them", "mmulator explain swizzle")),
        "explanation/descriptors.md", "Shared State Space",
    ),
)  # fmt: skip
WORDS = {word: topic for topic in TOPICS for word in (topic.name, *topic.also)}


def topic_of(words: Sequence[str]) -> Topic | None:
    """The topic that words name, whose hyphens may be underscores or blanks."""
    return WORDS.get("-".join(words).lower().replace("_", "-").replace(" ", "-"))


def similar(words: Sequence[str]) -> list[str]:
    """Topics that may have been meant."""
    from mmulator.base.errors import similar as like

    found = like("-".join(words).lower().replace("_", "-"), WORDS)
    return list(dict.fromkeys(WORDS[word].name for word in found))
