"""`python -m pytest -p tests.support.cpu_times` ends with CPU seconds by folder, file and test.

CPU time is that of the test's process and of the children that it waited for. Unlike wall time it
says the same on a busy machine, and with any number of workers.
"""

import resource
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import PurePosixPath
from typing import Any

import pytest

NAME = "cpu_seconds"
LONGEST = 40
KEPT = ("tests.support.kept", "tests.pipeline.crashes")
"""Modules that keep a process."""
LAST = pytest.StashKey[float]()
"""What was used up to the last report."""

spent: defaultdict[str, float] = defaultdict(float)


def used() -> float:
    """Seconds of processor time of this process, its children that have ended, and those kept."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ended = sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))
    kept = (sys.modules.get(name) for name in KEPT)
    return ended + sum(float(module.used()) for module in kept if module)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Send what was used since the last report of this worker with the report of a test's end."""
    report = yield
    if call.when == "teardown":
        now = used()
        report.user_properties.append((NAME, now - item.session.stash[LAST]))
        item.session.stash[LAST] = now
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collecting is nobody's cost."""
    session.stash[LAST] = used()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's cost where the reports of all workers come together."""
    for name, value in report.user_properties:
        if name == NAME and isinstance(value, float):
            spent[report.nodeid] += value


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the costs, the largest first."""
    files: defaultdict[str, float] = defaultdict(float)
    folders: defaultdict[str, float] = defaultdict(float)
    for test, seconds in spent.items():
        file = test.partition("::")[0]
        files[file] += seconds
        folders[str(PurePosixPath(file).parent)] += seconds
    for title, counted, most in (
        ("folder", folders, None),
        ("file", files, LONGEST),
        ("test", spent, LONGEST),
    ):
        terminalreporter.section(f"CPU seconds by {title}")
        for line in lines(counted, most):
            terminalreporter.write_line(line)


def lines(counted: Mapping[str, float], most: int | None) -> Iterator[str]:
    """Say each of the largest and the sum of all."""
    largest = sorted(counted.items(), key=itemgetter(1), reverse=True)
    for name, seconds in largest[:most]:
        yield f"{seconds:8.1f}  {name}"
    yield f"{sum(counted.values()):8.1f}  all"
