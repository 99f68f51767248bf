"""What Python's `logging` gets, as events of a run."""

import logging
from typing import Any

import pytest

from autopipe.pipeline.logs import forward_logs

LOG = logging.getLogger("autopipe.compiler.example")


@pytest.mark.parametrize(
    ("verbosity", "levels"),
    [(0, []), (1, ["info"]), (2, ["info", "debug"]), (5, ["info", "debug"])],
)
def test_more_is_logged_the_more_is_asked_for(verbosity, levels):
    events: list[Any] = []
    with forward_logs(events.append, "lower", verbosity):
        LOG.info("kernel %s", "a")
        LOG.debug("pass %s", "b")
    LOG.info("nobody asks")
    assert [event.level for event in events] == levels
    assert all(event.stage == "lower" for event in events)
    assert [event.message for event in events] == ["kernel a", "pass b"][: len(levels)]


def test_loggers_are_afterwards_as_before():
    logger = logging.getLogger("autopipe")
    before = logger.level, logger.propagate, list(logger.handlers)
    with pytest.raises(ValueError, match="failed"), forward_logs(lambda _: None, "lower", 2):
        raise ValueError("failed")
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
