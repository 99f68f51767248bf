"""Compiles the plain loops that schedules are checked with, beside what else a build does."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from autopipe.errors import StoreError
from autopipe.measure.build import split_weights
from autopipe.measure.plain_code import PlainKernel, PlainSource, link_plain
from autopipe.processes.contained import Child, Failed
from autopipe.processes.link import wait_for_readable
from autopipe.safety.inspection import ScheduleChecker
from autopipe.safety.quarantine import Suspect
from autopipe.safety.verdict import Verdict

_LOG: Final = logging.getLogger(__name__)

_BATCH: Final = 8
"""Tasks of a library at least: to start LLVM and the linker takes as long as one of them."""

_NICENESS: Final = 10
"""Of the child, since the user waits for planning and compiling."""

_Key = tuple[str, str, str, str]
"""Names a schedule: task, engine, implementation and how it is made."""


class PreparedChecks:
    """Checks schedules with plain loops that children compile ahead, in batches.

    A schedule whose batch fails has its plain loops compiled by its own check, which tells why.
    """

    def __init__(self, checker: ScheduleChecker, folder: Path | None) -> None:
        """Take who checks, and a folder for the libraries; without one, nothing is prepared."""
        self._checker = checker
        self._folder = folder
        self._waiting: dict[_Key, PlainSource] = {}
        self._running: list[tuple[Child, Mapping[_Key, PlainKernel]]] = []
        self._compiled: dict[_Key, PlainKernel] = {}

    def prepare(self, suspect: Suspect) -> None:
        """Have the plain loops of a schedule compiled with others, if it needs a check."""
        if self._folder is not None and self._checker.needs_check(suspect):
            packing = split_weights(suspect.scheduled).compiled_packing
            self._waiting[suspect[:4]] = PlainSource(suspect.workload, packing)
        links = [child.link for child, _ in self._running]
        if len(self._waiting) >= _BATCH and len(wait_for_readable(links, 0.0)) == len(links):
            self.start()

    def start(self) -> None:
        """Begin to compile what waits."""
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
        """Return the number of schedules whose plain loops are compiled, or will be."""
        return len(self._waiting) + len(self._compiled) + sum(len(one) for _, one in self._running)

    def count_compiled(self) -> int:
        """Return the number of those whose batch has ended."""
        ended = wait_for_readable([child.link for child, _ in self._running], 0.0)
        return len(self._compiled) + sum(
            len(kernels) for child, kernels in self._running if child.link in ended
        )

    def judge(self, suspects: Sequence[Suspect]) -> list[Verdict]:
        """Return a verdict for each. Raises StageError as the checker does."""
        self._await_batches()
        return self._checker.judge(
            [suspect._replace(plain=self._compiled.get(suspect[:4])) for suspect in suspects]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running:
            running[0].close()

    def _await_batches(self) -> None:
        """Wait for the batches that are compiled."""
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
