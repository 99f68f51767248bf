"""Compile the reference loops of schedule checks in the background of a build."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from autopipe.building.dynamic_twins import DynamicTwin
from autopipe.errors import StoreError
from autopipe.measure.build import split_weights
from autopipe.measure.plain_code import PlainKernel, PlainSource, link_plain
from autopipe.processes.contained import Child, Failed
from autopipe.processes.link import wait_for_readable
from autopipe.safety.inspection import ScheduleChecker
from autopipe.safety.job import Piece
from autopipe.safety.verdict import Verdict

_LOG: Final = logging.getLogger(__name__)

_BATCH: Final = 8
"""Minimum tasks of a library: starting LLVM and the linker takes as long as one task."""

_NICENESS: Final = 10
"""Niceness of the child, since planning and compiling are on the critical path."""

_Key = tuple[str, str, str, str]
"""Identifies a schedule: task, engine, implementation and record."""


class PreparedChecks:
    """Checks schedules against reference loops that children compile ahead, in batches.

    If a batch fails, the check of each schedule compiles its reference loops and reports the error.
    """

    def __init__(
        self,
        checker: ScheduleChecker,
        folder: Path | None,
        twins: Mapping[str, DynamicTwin] = MappingProxyType({}),
    ) -> None:
        """Wrap a checker; `folder` is for the libraries. Without one, nothing is prepared.

        `twins` are tasks by name that take the reference loops of another one.
        """
        self._checker = checker
        self._folder = folder
        self._twins = twins
        self._keys: dict[str, _Key] = {}
        """The schedule of each task whose reference loops are compiled, by name."""
        self._served: set[_Key] = set()
        """Schedules that take the reference loops of the twin of their task."""
        self._waiting: dict[_Key, PlainSource] = {}
        self._running: list[tuple[Child, Mapping[_Key, PlainKernel]]] = []
        self._compiled: dict[_Key, PlainKernel] = {}

    def has_twin(self, task: str) -> bool:
        """Tell whether a task takes the reference loops of another one."""
        return task in self._twins

    def prepare(self, suspect: Piece) -> None:
        """Queue the reference loops of a schedule for compilation, if it needs a check."""
        if self._folder is not None and self._checker.needs_check(suspect):
            packing = split_weights(suspect.candidate).compiled_packing
            if suspect.task in self._twins and packing is None:
                self._served.add(_to_key(suspect))
                return
            self._waiting[_to_key(suspect)] = PlainSource(suspect.workload, packing)
            self._keys[suspect.task] = _to_key(suspect)
        links = [child.link for child, _ in self._running]
        if len(self._waiting) >= _BATCH and len(wait_for_readable(links, 0.0)) == len(links):
            self.start()

    def start(self) -> None:
        """Start compiling the queued reference loops."""
        if self._folder is None or not self._waiting:
            return
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"plain{len(self._running)}.so"
        names = {key: f"plain{place}" for place, key in enumerate(self._waiting)}
        sources = {names[key]: source for key, source in self._waiting.items()}
        child = Child(lambda: lambda _: _link_plain_loops(sources, path))
        child.tell()
        kernels = {key: PlainKernel(str(path), name) for key, name in names.items()}
        self._running.append((child, kernels))
        self._waiting = {}

    def count_prepared(self) -> int:
        """Count the schedules whose reference loops are queued, running or compiled."""
        return len(self._waiting) + len(self._compiled) + sum(len(one) for _, one in self._running)

    def count_compiled(self) -> int:
        """Count the schedules whose batch has ended."""
        ready_links = wait_for_readable([child.link for child, _ in self._running], 0.0)
        return len(self._compiled) + sum(
            len(kernels) for child, kernels in self._running if child.link in ready_links
        )

    def judge(self, suspects: Sequence[Piece]) -> list[Verdict]:
        """Judge each suspect. Raises StageError as the checker does."""
        self._await_batches()
        return self._checker.judge(
            [replace(suspect, plain=self._find_compiled(suspect)) for suspect in suspects]
        )

    def _find_compiled(self, suspect: Piece) -> PlainKernel | None:
        """Find the compiled reference loops of a schedule, or those of its task's twin."""
        if _to_key(suspect) not in self._served:
            return self._compiled.get(_to_key(suspect))
        twin = self._twins[suspect.task]
        kernel = self._compiled.get(self._keys[twin.task]) if twin.task in self._keys else None
        return None if kernel is None else replace(kernel, counts=twin.counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running:
            running[0].close()

    def _await_batches(self) -> None:
        """Wait for the running batches."""
        for child, kernels in self._running:
            with child:
                try:
                    child.answer()
                except (Failed, StoreError) as error:
                    _LOG.debug("the plain loops of %d tasks: %s", len(kernels), error)
                else:
                    self._compiled |= kernels
        self._running = []


def _link_plain_loops(sources: Mapping[str, PlainSource], path: Path) -> None:
    os.nice(_NICENESS)
    link_plain(sources, path)


def _to_key(suspect: Piece) -> _Key:
    return suspect.task, suspect.engine, suspect.implementation, suspect.schedule
