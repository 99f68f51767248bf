"""Confine a process that reads untrusted files with Linux's seccomp.

A confined process can compute, read files and write to open descriptors. It cannot start processes,
open files for writing, make connections or signal other processes: such calls fail with EPERM. This
needs neither a library nor privileges.
"""

import ctypes
import errno
import os
import platform
import struct
from dataclasses import dataclass
from typing import Any, Final

from autopipe.errors import SetupError

_NO_NEW_PRIVS: Final = 38
_SECCOMP: Final = 22
_FILTER: Final = 2
_SET_NAME: Final = 15

# Instructions of the kernel's packet filter: load a word, compare, test bits, return.
_LOAD: Final = 0x20
_EQUALS: Final = 0x15
_HAS: Final = 0x45
_RETURN: Final = 0x06

_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_NUMBER: Final = 0
_ARCH: Final = 4
_ARGUMENTS: Final = 16

_WRITES: Final = (
    os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20000000
)  # the last: O_TMPFILE
_THREAD: Final = 0x10000

Rule = list[tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class _Machine:
    """Numbers of system calls of an architecture."""

    arch: int
    free: tuple[int, ...]
    """Calls allowed with any arguments: reading, memory, clocks, threads, own state."""
    opens: tuple[tuple[int, int], ...]
    """Calls that open files, and the position of their flags."""
    clone: int
    clone3: int
    kills: tuple[int, ...]
    """Calls that signal the process of the first argument."""
    prlimit: int
    prctl: int
    ioctl: int
    fcntl: int


_MACHINES: Final = {
    "x86_64": _Machine(
        arch=0xC000003E,
        # read write readv writev pread64 lseek close close_range fstat newfstatat statx fstatfs
        # statfs stat lstat access faccessat faccessat2 readlink readlinkat getcwd getdents(64)
        # mmap mprotect munmap mremap madvise brk msync mincore, signals of its own, poll select
        # epoll pipe dup eventfd, futex and threads, scheduling, clocks, identifiers, sysinfo uname
        # getrandom getrlimit exit exit_group arch_prctl capget
        free=(
            0, 1, 19, 20, 17, 8, 3, 436, 5, 262, 332, 138, 137, 4, 6, 21, 269, 439, 89, 267, 79,
            78, 217, 9, 10, 11, 25, 28, 12, 26, 27, 13, 14, 15, 127, 128, 131, 219, 7, 271, 23, 270,
            291, 233, 281, 232, 22, 293, 32, 33, 292, 290, 202, 273, 334, 218, 24, 204, 143, 145,
            309, 324, 228, 229, 230, 35, 96, 201, 100, 98, 36, 39, 110, 186, 102, 107, 104, 108,
            118, 120, 115, 121, 124, 111, 125, 140, 63, 99, 318, 97, 60, 231, 158,
        ),
        opens=((257, 2), (2, 1)), clone=56, clone3=435, kills=(62, 234), prlimit=302, prctl=157,
        ioctl=16, fcntl=72,
    ),
    "aarch64": _Machine(
        arch=0xC00000B7,
        free=(
            63, 64, 65, 66, 67, 62, 57, 436, 80, 79, 291, 44, 43, 48, 439, 78, 17, 61, 222, 226,
            215, 216, 233, 214, 227, 232, 134, 135, 139, 136, 137, 132, 128, 73, 72, 20, 21, 22, 59,
            23, 24, 19, 98, 99, 293, 96, 124, 123, 121, 120, 168, 283, 113, 114, 115, 101, 169, 153,
            165, 102, 172, 173, 178, 174, 175, 176, 177, 148, 150, 158, 155, 156, 90, 141, 160, 179,
            278, 163, 93, 94,
        ),
        opens=((56, 2),), clone=220, clone3=435, kills=(129, 131), prlimit=261, prctl=167,
        ioctl=29, fcntl=25,
    ),
}  # fmt: skip

_FCNTL: Final = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC: these affect only descriptors."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine_thread() -> bool:
    """Confine this thread, and all threads that it starts, permanently.

    Call it while there is no other thread. Returns whether it is confined: not on kernels without
    seccomp, other architectures and other systems.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        return False
    code = b"".join(
        struct.pack("=HBBI", *instruction) for instruction in _build_filter(machine, os.getpid())
    )
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) == 0)


def works() -> bool:
    """Return whether seccomp works on this machine, by trying it in a child."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if confine_thread() and _is_refused() else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def check_seccomp(_argument: object, _emit: object) -> str:
    """Check for `doctor` that processes can be confined. Raises SetupError if they cannot."""
    if not works():
        raise SetupError("no seccomp here: models are parsed in processes that could do more")
    return "models are parsed without a way to files, processes or the network"


def _is_refused() -> bool:
    """Return whether forbidden calls fail."""
    tries: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (os.fork, ()), (os.open, (os.devnull, os.O_WRONLY)), (os.kill, (os.getppid(), 0)),
    )  # fmt: skip
    for call, arguments in tries:
        try:
            if call(*arguments) == 0 and call is os.fork:
                os._exit(1)
        except PermissionError:
            continue
        return False
    return True


def _build_filter(machine: _Machine, pid: int) -> Rule:
    """Build the filter program: allowed calls in order, and all others refused."""
    rules = [_match_call(number, [_return_verdict(_ALLOW)]) for number in machine.free]
    rules += [
        _match_call(number, _allow_without_bits(flags, _WRITES)) for number, flags in machine.opens
    ]
    rules += [_match_call(number, _allow_values(0, (pid,))) for number in machine.kills]
    rules += [
        _match_call(
            machine.clone,
            [_load_argument(0), (_HAS, 0, 1, _THREAD), _return_verdict(_ALLOW), _deny_call()],
        ),
        _match_call(machine.clone3, [_deny_call(errno.ENOSYS)]),  # glibc then takes the one above
        _match_call(machine.prlimit, _allow_values(0, (0, pid))),
        _match_call(machine.prctl, _allow_values(0, (_SET_NAME,))),
        _match_call(machine.fcntl, _allow_values(1, _FCNTL)),
        _match_call(machine.ioctl, [_deny_call(errno.ENOTTY)]),
    ]
    right = [(_LOAD, 0, 0, _ARCH), (_EQUALS, 1, 0, machine.arch), _deny_call()]
    return [
        *right,
        (_LOAD, 0, 0, _NUMBER),
        *(step for rule in rules for step in rule),
        _deny_call(),
    ]


def _match_call(number: int, actions: Rule) -> Rule:
    return [(_EQUALS, 0, len(actions), number), *actions]


def _allow_without_bits(argument: int, bits: int) -> Rule:
    return [_load_argument(argument), (_HAS, 1, 0, bits), _return_verdict(_ALLOW), _deny_call()]


def _allow_values(argument: int, values: tuple[int, ...]) -> Rule:
    tests = [step for value in values for step in ((_EQUALS, 0, 1, value), _return_verdict(_ALLOW))]
    return [_load_argument(argument), *tests, _deny_call()]


def _load_argument(argument: int) -> tuple[int, int, int, int]:
    """Load the lower word of an argument, which suffices for C's int and small flags."""
    return _LOAD, 0, 0, _ARGUMENTS + 8 * argument


def _return_verdict(verdict: int) -> tuple[int, int, int, int]:
    return _RETURN, 0, 0, verdict


def _deny_call(number: int = errno.EPERM) -> tuple[int, int, int, int]:
    return _return_verdict(_ERROR | number)
