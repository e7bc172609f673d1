"""Rules about the order between the operations of a program: launches, copies, fills, memory that is freed, and accesses of the
host. Their numbers begin at 1100.
"""

from mmulator.base.rules.rule import Rule, Severity

_STREAMS = "CUDA C++ Programming Guide, Asynchronous Concurrent Execution: Streams"
_ORDERED = (
    "An operation of a stream begins when the operations before it in the same stream are over. Two streams are ordered only "
    "by what says so: an event that one records and the other waits for, a synchronisation by the host between the two, an edge "
    "of a graph, or the legacy default stream, which waits for all streams that are not cudaStreamNonBlocking, and they for it. "
)
_PAGES = "CUDA C++ Programming Guide, Asynchronous Concurrent Execution: Concurrent Execution between Host and Device"
_HOST = (
    "A launch and an asynchronous copy return before they have run. The host may touch what they touch once it has waited: "
    "cudaDeviceSynchronize, cudaStreamSynchronize, cudaEventSynchronize of an event recorded after them, or a copy that waits. "
)
_DEPENDENT = (
    "PTX ISA 9.1, Parallel Synchronization and Communication Instructions: griddepcontrol; CUDA C++ Programming Guide, "
    "Programmatic Dependent Launch and Synchronization"
)


def _error(number: int, name: str, title: str, text: str, hint: str, section: str = _STREAMS) -> Rule:
    return Rule(number, name, Severity.ERROR, title, section, text, hint)


UNORDERED = _error(
    1100, "stream-race", "two operations of a program access the same bytes, one writes, and nothing orders the two",
    _ORDERED + "Here nothing does, so that on a GPU either may come first, or both run at once.",
    "let the second wait for an event that is recorded after the first (cudaEventRecord, cudaStreamWaitEvent)",
)  # fmt: skip
FREED = _error(
    1101, "stream-freed-in-use", "memory is freed while an operation uses it, and nothing says that the operation is over",
    _ORDERED + "Memory that a stream frees (cudaFreeAsync), or that torch's allocator takes back, is given out again as soon as "
    "that stream comes to it; cudaFree waits only for memory that cudaMalloc gave out.",
    "let the stream that frees wait for an event recorded after the operation; for a tensor of torch, "
    "tensor.record_stream(stream)",
)  # fmt: skip
HOST_READ = _error(
    1102, "host-read-early", "the host reads memory that an operation under way may still write",
    _HOST + "Who reads managed, pinned or registered memory sooner may see what was there before.",
    "wait before the host reads: cudaStreamSynchronize of the operation's stream, or cudaDeviceSynchronize",
    _PAGES,
)  # fmt: skip
HOST_WRITE = _error(
    1103, "host-write-early", "the host writes memory that an operation under way may still use",
    _HOST + "Who writes managed, pinned or registered memory sooner may change what the operation reads, or be overwritten by "
    "it. The source of an asynchronous copy from pinned memory is read when the copy runs, not when it is called.",
    "wait before the host writes: cudaStreamSynchronize of the operation's stream, or an event recorded after the operation; or "
    "use a second buffer",
    _PAGES,
)  # fmt: skip
DEPENDENT = Rule(
    1104, "dependent-launch-early", Severity.ERROR,
    "a dependent launch uses, before griddepcontrol.wait, what the launch before it uses", _DEPENDENT,
    "A kernel that is launched with programmatic stream serialisation may begin before the kernel in front of it is over, and "
    "sees what that one writes only after griddepcontrol.wait (cudaGridDependencySynchronize): griddepcontrol.launch_dependents "
    "of the first makes nothing visible. Before the wait it may read nothing that the other writes, and write nothing that it "
    "uses. A thread that does not wait itself needs a barrier after a thread that does.",
    "put griddepcontrol.wait (cudaGridDependencySynchronize()) before the access, or launch without the attribute",
)  # fmt: skip

OF_PROGRAMS: tuple[Rule, ...] = (UNORDERED, FREED, HOST_READ, HOST_WRITE, DEPENDENT)
