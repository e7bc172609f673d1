"""The means of the kernel of Linux to keep a process in: namespaces, mounts, Landlock, capabilities. Through ctypes.

Each function raises OSError where the system does not offer what it does (another system, an old kernel, a container that
forbids it).
"""

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

USER, PROCESSES, MOUNTS, IPC, NETWORK = 0x10000000, 0x20000000, 0x00020000, 0x08000000, 0x40000000  # CLONE_NEW*
ALL = USER | PROCESSES | MOUNTS | IPC | NETWORK
DEATH_SIGNAL, DUMPABLE, SUBREAPER, NO_NEW_RIGHTS, DROP_BOUND = 1, 4, 36, 38, 24  # of prctl
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS, _BIND, _ALL_BELOW, _PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18  # MS_*
_HERE, _RECURSIVE = -100, 0x8000  # AT_FDCWD, AT_RECURSIVE
_MOUNT_SETATTR, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 442, 444, 445, 446  # calls of one number on all machines
# rights of Landlock to change files, by the version that brought them
_WRITE, _CHANGE, _SINCE = 1 << 1, sum(1 << n for n in (1, *range(4, 13))), {2: 1 << 13, 3: 1 << 14}
_TRUNCATE = _SINCE[3]
SCOPED = 6  # the version of Landlock from which on signals stay inside
# calls that are refused, since they hold memory that nobody counts, or get round other refusals: by machine, its number in a
# filter, and shmget, add_key, keyctl, userfaultfd, io_uring_setup, memfd_secret
_REFUSED = {"x86_64": (0xC000003E, (29, 248, 250, 323, 425, 447)), "aarch64": (0xC00000B7, (194, 217, 219, 282, 425, 447))}
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_MOST_PROCESSES = 4096


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError("not Linux")
    libc.syscall.restype = ctypes.c_long
    return libc


def _call(name: str, *args: object) -> int:
    """Call a function of the C library. Raises OSError where it fails."""
    given = (a if not isinstance(a, str) else a.encode() for a in args)
    done = getattr(_libc(), name)(*(ctypes.c_ulong(a) if isinstance(a, int) and a >= 0 else a for a in given))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return int(done)


def control(option: int, value: int) -> None:
    """prctl of one value, without effect on another system."""
    with suppress(OSError):
        _call("prctl", option, value, 0, 0, 0)


def separate() -> int:
    """Give this process namespaces of its own, and its children their own processes. Returns which, as bits of ALL."""
    user, group = os.geteuid(), os.getegid()
    for wish in (ALL, ALL & ~USER):
        try:
            _call("unshare", wish)
        except OSError:
            continue
        if wish & USER:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        return wish
    return 0


def loopback() -> None:
    """Switch on the one interface of an own network: programs talk to themselves."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        fcntl.ioctl(door, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    _call("mount", source, target, kind, flags, data)


def _flags(path: str, add: int = 0, clear: int = 0, recursive: int = 0) -> None:
    size = 32
    words = (ctypes.c_uint64 * 4)(add, clear, 0, 0)
    _call("syscall", _MOUNT_SETATTR, ctypes.c_long(_HERE), path, recursive, ctypes.byref(words), size)


def wall(own: str, size: int, hidden: Iterable[str], kept: Sequence[str]) -> None:
    """Make all files read-only for this process and its children, but for a folder of memory. Needs namespaces of mounts.

    own: that folder. `own/shm` is also /dev/shm. What is outside under its name is not seen.
    size: bytes that it may hold.
    hidden: files that are empty from now on.
    kept: folders below /run that stay; else /run, where the sockets of services are, is empty.
    """
    _mount("none", "/", None, _PRIVATE | _ALL_BELOW)
    for path in hidden:
        _mount("/dev/null", path, None, _BIND)
    _flags("/", add=_READ_ONLY | _NO_SETUID | _NO_DEVICES, recursive=_RECURSIVE)
    _mount("own", own, "tmpfs", _NO_SETUID | _NO_DEVICES, f"size={size},mode=700")
    for name in ("shm", "dev", "run"):
        Path(own, name).mkdir()
    for name in _DEVICES:
        if Path("/dev", name).exists():
            os.close(os.open(f"{own}/dev/{name}", os.O_CREAT))
            _mount(f"/dev/{name}", f"{own}/dev/{name}", None, _BIND)
            _flags(f"{own}/dev/{name}", clear=_NO_DEVICES)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path(own, "dev", name).symlink_to(f"/proc/self/{target}")
    Path(own, "dev", "shm").mkdir()
    _mount(f"{own}/shm", f"{own}/dev/shm", None, _BIND)
    _mount(f"{own}/dev", "/dev", None, _BIND | _ALL_BELOW)
    if Path("/run").is_dir() and not any(str(Path(path).resolve()).startswith("/run/") for path in kept):
        _mount(f"{own}/run", "/run", None, _BIND)
    with suppress(OSError):  # a container that hides parts of /proc allows no other one
        _mount("proc", "/proc", "proc", _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)


def layer(folder: str, own: str) -> None:
    """Let a folder be written to, so that nothing of it stays: what is written goes to a folder of memory.

    Raises OSError, too, where file systems are mounted below it, which would not be seen.
    """
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if any(place.startswith(folder.rstrip("/") + "/") for place in mounted):
        raise OSError(f"{folder} has file systems below it")
    for name in ("upper", "work"):
        Path(own, name).mkdir()
    data = f"lowerdir={folder},upperdir={own}/upper,workdir={own}/work,userxattr"
    _mount("layer", folder, "overlay", _NO_SETUID | _NO_DEVICES, data)


def landlock_version() -> int:
    """The version of Landlock that this system offers; 0 for none."""
    try:
        return _call("syscall", _CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def landlock(folders: Iterable[str], files: Iterable[int]) -> None:
    """Deny this process and its children to change files; it traces nobody outside, and from version 6 on signals nobody.

    folders: below which everything may be changed.
    files: open files that may be written to, by any name.
    """
    version = landlock_version()
    rights = _CHANGE | sum(bit for since, bit in _SINCE.items() if version >= since)
    words = (ctypes.c_uint64 * 3)(rights, 0, 3 if version >= SCOPED else 0)
    rules = _call("syscall", _CREATE_RULESET, ctypes.byref(words), 24 if version >= SCOPED else 8, 0)
    devices = [f"/dev/{name}" for name in _DEVICES if Path("/dev", name).exists()]
    opened = [(os.open(path, os.O_PATH), rights if path in folders else _WRITE) for path in (*folders, *devices)]
    for place, allowed in (*opened, *((file, (_WRITE | _TRUNCATE) & rights) for file in files)):
        with suppress(OSError):  # a pipe, which lies in no folder
            _call("syscall", _ADD_RULE, rules, 1, struct.pack("=Qi", allowed, place), 0)
    control(NO_NEW_RIGHTS, 1)
    _call("syscall", _RESTRICT_SELF, rules, 0)
    for place in (rules, *(place for place, _ in opened)):
        os.close(place)


def refuse_calls() -> None:
    """Refuse some calls of the kernel for this process and its children (seccomp); no other machine's numbers of calls count."""
    if os.uname().machine not in _REFUSED:
        return
    machine, numbers = _REFUSED[os.uname().machine]
    tests = [(0x35, 1 << 30), *((0x15, number) for number in numbers)]  # not less (numbers of another kind); equal
    lines = [(0x20, 0, 0, 4), (0x15, 0, len(tests) + 2, machine), (0x20, 0, 0, 0)]  # load the machine, then the call
    lines += [(test, len(tests) - n, 0, value) for n, (test, value) in enumerate(tests)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x50000 | 1)]  # allow; EPERM
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    text = ctypes.create_string_buffer(code)
    _call("prctl", 22, 2, struct.pack("@HP", len(lines), ctypes.addressof(text)), 0, 0)  # PR_SET_SECCOMP, a filter


def bare(file_size: int) -> None:
    """Give up all rights beyond those of the user, for ever, and limit the sizes of files and the number of processes."""
    for number in range(64):
        control(DROP_BOUND, number)
    control(NO_NEW_RIGHTS, 1)
    with suppress(OSError):
        _call("capset", struct.pack("=Ii", 0x20080522, 0), bytes(24))
    for what, most in ((resource.RLIMIT_FSIZE, file_size), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, _MOST_PROCESSES)):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
