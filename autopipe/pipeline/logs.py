"""Forward records of Python's `logging` as events of the run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autopipe.pipeline.events import Emit, Logged

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
"""Levels by verbosity. Warnings are separate events."""


class _EventHandler(logging.Handler):
    """Forwards records as events."""

    def __init__(self, emit: Emit, stage: str) -> None:
        super().__init__()
        self._emit = emit
        self._stage = stage

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname.lower()
        self._emit(
            Logged(stage=self._stage, level=level, source=record.name, message=record.getMessage())
        )


@contextmanager
def forward_logs(emit: Emit, stage: str, verbosity: int) -> Iterator[None]:
    """Emit records of loggers below `autopipe`: decisions at verbosity 1, each step from 2 on."""
    if verbosity == 0:
        yield
        return
    logger, handler = logging.getLogger("autopipe"), _EventHandler(emit, stage)
    logger.addHandler(handler)
    level, propagate = logger.level, logger.propagate
    logger.setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
