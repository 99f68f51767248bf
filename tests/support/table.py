"""Tables in one test: each row is checked, and all rows that fail are named.

    @each_row("text, said", [("1 +", "ends"), ("1 1", "no operator")])
    def test_what_is_wrong_is_said(text, said): ...

`pytest.mark.parametrize` makes a test of each row instead. That is right where a row takes long,
or needs fixtures of its own: here all rows share `tmp_path` and `monkeypatch`.
"""

import functools
import inspect
from collections.abc import Callable, Iterable

import pytest

Test = Callable[..., None]

LONGEST = 60
"""Characters of a value that a failing row is named with."""


def each_row(names: str, table: Iterable[object]) -> Callable[[Test], Test]:
    """Call a test with each row of a table, and tell all failures at the end.

    Args:
        names: The test's parameters that a row gives, with commas between.
        table: The rows: tuples, or values where there is one name. An empty table fails.
    """
    parameters = [name.strip() for name in names.split(",")]
    values = [row if len(parameters) > 1 else (row,) for row in table]
    given = [dict(zip(parameters, row, strict=True)) for row in values]  # type: ignore[call-overload]

    def of(test: Test) -> Test:
        @functools.wraps(test)
        def loop(**fixtures: object) -> None:
            assert given, "a table without rows proves nothing"
            failures = []
            for number, row in enumerate(given):
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below
                    error.add_note(f"row {number}: {_shown(row)}")
                    failures.append(error)
            if failures:
                told = "\n".join(error.__notes__[-1] for error in failures)
                failed = f"{len(failures)} of {len(given)} rows fail:\n{told}"
                raise BaseExceptionGroup(failed, failures)

        known = inspect.signature(test)
        left = [each for name, each in known.parameters.items() if name not in parameters]
        vars(loop)["__signature__"] = known.replace(parameters=left)
        return loop

    return of


def _shown(row: dict[str, object]) -> str:
    """Name a row in a line."""
    texts = ((name, ascii(value)) for name, value in row.items())
    return ", ".join(
        f"{name}={text if len(text) <= LONGEST else text[:LONGEST] + '...'}" for name, text in texts
    )
