"""Runs a function in a fork whose n-th operation on files ends it, or fails."""

import os
import warnings
from collections.abc import Callable
from typing import Any

from autopipe.errors import StoreError

OPERATIONS = (
    "chmod", "fsync", "mkdir", "open", "remove", "rename", "replace", "rmdir", "unlink", "utime",
    "write",
)  # fmt: skip


def crash_at(n: int, action: Callable[[], object]) -> int:
    """Die like a kill -9 before the n-th operation; return the exit status, 0 for the end."""

    def die(name: str) -> None:
        os._exit(137)

    return _forked(n, action, die)


def fail_at(n: int, code: int, action: Callable[[], object]) -> int:
    """Have the n-th operation, and all that follow, fail like a full disk."""

    def refuse(name: str) -> None:
        raise OSError(code, os.strerror(code))

    return _forked(n, action, refuse)


def _forked(n: int, action: Callable[[], object], fault: Callable[[str], None]) -> int:
    with warnings.catch_warnings():  # numpy, where another test has imported it, has threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 99
        try:
            _arm(n, fault)
            action()
            status = 0
        except Exception as error:  # noqa: BLE001
            expected = isinstance(error, StoreError) and "No space left" in str(error)
            status = 5 if expected else 70
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _arm(n: int, fault: Callable[[str], None]) -> None:
    count = 0

    def wrap(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count >= n:
                fault(name)
            return original(*args, **kwargs)

        return counted

    for name in OPERATIONS:
        setattr(os, name, wrap(name))
