"""The thread pool of a loaded model: one, however many threads call it.

TVM keeps a pool of worker threads for each thread that calls a kernel, as long as that thread
lives; 100 threads that call a model of two threads would have 100 pools.
"""

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from autopipe.compiler.library.call_limit import CallLimit, CallLimits
from autopipe.compiler.library.call_thread import CallThread
from autopipe.errors import ConfigError

Args = TypeVarTuple("Args")
R = TypeVar("R")

_SHARE_ALL_CORES: Final = -3

_LOST: Final = -1
"""In place of a thread count: a fork has ended the pool, and kernels would wait for it."""

_ANY: Final = object()
"""The owner of a pool without workers."""

_SPIN: Final = "TVM_THREAD_POOL_SPIN_COUNT"
_SPIN_COUNT: Final = "5000"
"""How often a worker thread polls for work before it sleeps: 2 ms on an idle machine."""


class _CallingThread(threading.local):
    """The configuration of TVM's pool for the calling thread."""

    def __init__(self) -> None:
        self.identity = object()  # other than `get_ident`, never that of a later thread
        self.wanted = 0
        self.has_all = False


_calling = _CallingThread()


class KernelThreads:
    """Runs calls one at a time, with kernels on `count` threads.

    The first thread that calls owns the pool, and makes its calls itself. Once another thread
    calls, a thread of this object makes all calls, and owns the pool; it ends with `close`, with
    this object or with the interpreter. A single thread needs no pool: each caller is that thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._owner = _ANY if count == 1 else None
        self._call_thread: CallThread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(self, function: Callable[[*Args], R], *args: *Args) -> R:
        """Run `function` when it is the turn of this call, and return its result."""
        with self._lock:  # a call of a small model takes 10 us, a layer between 0.2
            return function(*args) if self._is_ready() else self._make_call(function, *args)

    def run_limited(
        self,
        limits: CallLimits,
        limit: float | CallLimit | None,
        function: Callable[..., R],
        *args: object,
    ) -> R:
        """Run `function` under a limit, its last argument, and return the result.

        Raises CallLimitError for a call that exceeds its limit, or waits longer than that to begin.
        """
        if limit is None:
            return self.run(function, *args)
        with limits.start(limit) as running_limit:
            if not self._lock.acquire(timeout=running_limit.remaining()):
                raise running_limit.error()
            try:
                if running_limit.is_over():
                    raise running_limit.error()
                return self._make_call(function, *args, running_limit)
            finally:
                self._lock.release()

    def _make_call(self, function: Callable[..., R], *args: object) -> R:
        if self._closed:
            raise ConfigError("the model is closed")
        if self._is_ready() or self._become_owner():
            return function(*args)
        if self._call_thread is None or not self._call_thread.is_alive():
            self._call_thread = CallThread(lambda: use_threads(self._count))
        return self._call_thread.run(lambda: function(*args))

    def close(self) -> None:
        """End the threads, after the call that runs; later calls raise ConfigError."""
        with self._lock:
            self._closed, self._owner = True, self
            if self._call_thread is not None:
                self._call_thread.end()

    def _is_ready(self) -> bool:
        """Tell whether the pool of the calling thread is configured for this model."""
        if _calling.wanted != self._count:
            return False
        return self._owner is _calling.identity or self._owner is _ANY

    def _become_owner(self) -> bool:
        """Make the calling thread the owner of the pool if it is the first; tell whether it is."""
        first = self._owner in {None, _calling.identity, _ANY}
        if not (first and use_threads(self._count)):
            self._owner = self
        elif self._owner is None:
            self._owner = _calling.identity
        return self._owner is not self


def use_threads(wanted_count: int) -> bool:
    """Configure the pool of the calling thread for `wanted_count` threads, at most all cores.

    By itself TVM uses half of the cores on x86-64. Returns False where they will be fewer: TVM made
    a smaller pool for this thread before, which cannot grow, or a fork has ended the pool.
    """
    if _calling.wanted == _LOST:
        return False
    if _calling.wanted == wanted_count:
        return _calling.has_all
    from tvm_ffi import get_global_func

    configure = get_global_func("runtime.config_threadpool")
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    count = min(wanted_count, len(cores))
    if not _calling.wanted:  # a pool is made of as many threads as cores are named
        configure(_SHARE_ALL_CORES, count, cores[:count])
    configure(_SHARE_ALL_CORES, count, cores)  # no thread is tied to a core
    _await_workers()
    _calling.wanted = wanted_count
    _calling.has_all = get_global_func("runtime.NumThreads")() == count
    return _calling.has_all


def _await_workers() -> None:
    """Wait until each worker thread of the calling thread's pool has run a task.

    One that still starts holds a lock of the runtime, as it initializes a static variable; a
    process forked meanwhile would never see that released.
    """
    symbols = ctypes.CDLL(None)
    do_nothing = symbols.sched_yield  # a function in C that returns 0: workers need no interpreter
    symbols.TVMBackendParallelLaunch(do_nothing, None, 0)


def shorten_spin() -> None:
    """Shorten the busy waiting of worker threads; must come before the first kernel runs.

    By default they poll for work 300,000 times and yield their core each time: a tenth of a
    second, minutes on a busy machine, and a pool ends only after that. Between two kernels of a
    call they do not sleep.
    """
    os.environ.setdefault(_SPIN, _SPIN_COUNT)


def _lose_pool() -> None:
    if _calling.wanted:
        _calling.wanted = _LOST


os.register_at_fork(after_in_child=_lose_pool)
