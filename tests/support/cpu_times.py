"""What tests cost: `pytest -p tests.support.cpu_times` ends with CPU seconds by folder and file.

CPU time is that of the test's process and of the children that it waited for. Unlike wall time it
says the same on a busy machine, and with any number of workers.
"""

import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest

NAME = "cpu_seconds"
LONGEST = 40

spent: Counter[str] = Counter()


def used() -> float:
    """Seconds of processor time of this process and of its children that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Send what was used since the last report of this worker with the report of a test's end."""
    report = yield
    if call.when == "teardown":
        now = used()
        report.user_properties.append((NAME, now - item.session.stash.get(LAST, 0.0)))
        item.session.stash[LAST] = now
    return report


LAST = pytest.StashKey[float]()


def pytest_runtestloop(session: pytest.Session) -> None:
    """Collecting is nobody's cost."""
    session.stash[LAST] = used()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's cost where the reports of all workers come together."""
    costs: list[Any] = [value for name, value in report.user_properties if name == NAME]
    spent[report.nodeid] += sum(costs)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the costs, the largest first."""
    files: Counter[str] = Counter()
    folders: Counter[str] = Counter()
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


def lines(counted: Counter[str], most: int | None) -> Iterator[str]:
    """Say each of the largest and the sum of all."""
    for name, seconds in counted.most_common(most):
        yield f"{seconds:8.1f}  {name}"
    yield f"{sum(counted.values()):8.1f}  all"
