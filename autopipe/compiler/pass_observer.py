"""Observe passes while they run: their times, and the module after each.

TVM calls an instrument before and after each pass. Passes of lists count, but not those that a pass
of a list runs itself, such as for the kernels that constant folding compiles.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import tvm
from tvm.ir.instrument import pass_instrument

from autopipe.artifacts.pass_time import PassTime
from autopipe.errors import StoreError

_LISTS: Final = frozenset({"sequential", "_pipeline"})
"""Names of TVM's passes that only run a list of others."""

_current: ContextVar["PassObserver | None"] = ContextVar("observer", default=None)


@dataclass(slots=True)
class PassObserver:
    """Times of passes in the order of their first run, and the folder for modules."""

    folder: Path | None = None
    """A file for each pass that changes the module; None writes none."""
    times: dict[str, PassTime] = field(default_factory=dict)
    _running: list[tuple[str, float]] = field(default_factory=list)
    _last: str = ""
    _files: int = 0
    _refused: OSError | None = None

    def begin(self, name: str, text: Callable[[], str]) -> None:
        """Start the time of a pass; `text` prints its input."""
        if self.folder is not None and not self._files and not self._is_inside_pass():
            self._write_file("input", text())
        self._running.append((name, perf_counter()))

    def end(self, name: str, text: Callable[[], str]) -> None:
        """Add the time of a pass, and write its result if the text has changed."""
        end = perf_counter()
        _, start = self._running.pop()
        if name in _LISTS or self._is_inside_pass():
            return
        self.add(PassTime(name, 1, end - start))
        if self.folder is not None and (text_after := text()) != self._last:
            self._write_file(name, text_after)

    def add(self, time: PassTime) -> None:
        """Add the time of one or several runs of a pass."""
        _, runs, seconds = self.times.get(time.name, (time.name, 0, 0.0))
        self.times[time.name] = PassTime(time.name, runs + time.runs, seconds + time.seconds)

    def check_written(self) -> None:
        """Raise StoreError if a module could not be written."""
        if self._refused is not None:
            raise StoreError(f"{self.folder}: {self._refused.strerror}") from self._refused

    def _is_inside_pass(self) -> bool:
        """Tell whether a pass other than a list is running."""
        return any(name not in _LISTS for name, _ in self._running)

    def _write_file(self, name: str, text: str) -> None:
        """Write a file; keep an OSError for later, as C++ frames of TVM may call this."""
        if self.folder is None or self._refused is not None:
            return
        self._last, number = text, self._files
        self._files += 1
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{number:03}_{name.replace('/', '_')}.txt"
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            self._refused = error


@pass_instrument
class _Instrument:
    """Forwards TVM's pass events to an observer."""

    def __init__(self, observer: PassObserver) -> None:
        self._observer = observer

    def run_before_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self._observer.begin(str(info.name), partial(_format_module, module))

    def run_after_pass(self, module: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self._observer.end(str(info.name), partial(_format_module, module))


@contextmanager
def observe_passes(folder: Path | None = None) -> Iterator[PassObserver]:
    """Observe all passes that run in a `pass_context` inside of this one.

    Raises StoreError at the end if a module could not be written.
    """
    observer = PassObserver(folder)
    token = _current.set(observer)
    try:
        yield observer
    finally:
        _current.reset(token)
    observer.check_written()


@contextmanager
def observe_pass(name: str, text: Callable[[], str]) -> Iterator[None]:
    """Observe a pass that is not TVM's; `text` prints its input and its result."""
    observer = _current.get()
    if observer is None:
        yield
        return
    observer.begin(name, text)
    yield
    observer.end(name, text)


def list_pass_times() -> list[PassTime]:
    """List the times of the observed passes.

    Raises StoreError if a module could not be written.
    """
    if (observer := _current.get()) is None:
        return []
    observer.check_written()
    return list(observer.times.values())


def add_measured_passes(pass_times: Iterable[Iterable[Any]]) -> None:
    """Add pass times of another process, from `list_pass_times` as JSON, to the observer."""
    if (observer := _current.get()) is not None:
        for time in pass_times:
            observer.add(PassTime(*time))


@contextmanager
def observe_part(name: str) -> Iterator[None]:
    """Observe the passes of a part of the work on their own, with modules in a subfolder."""
    observer = _current.get()
    if observer is None:
        yield
        return
    with observe_passes(None if observer.folder is None else observer.folder / name):
        yield


def write_below(name: str) -> None:
    """Make the current observer write modules to a subfolder of its folder."""
    if (observer := _current.get()) is not None and observer.folder is not None:
        observer.folder /= name


def pass_context(config: Mapping[str, object] | None = None) -> tvm.transform.PassContext:
    """Build a context for passes of a build, with the current observer."""
    observer = _current.get()
    instruments = [] if observer is None else [_Instrument(observer)]
    return tvm.transform.PassContext(
        opt_level=3, config=dict(config or {}), instruments=instruments
    )


def _format_module(module: tvm.IRModule) -> str:
    """Format a module as TVMScript, without the values of its constants."""
    return str(module.script(show_meta=False))
