"""The tables themselves: every row is looked at, and each that fails is named."""

import pytest

from tests.support.table import each_row


def test_every_row_is_checked_and_all_failures_are_named(tmp_path):
    seen = []

    @each_row("number, name", [(1, "a"), (2, "b"), (3, "c" * 100)])
    def check(number, name, tmp_path):
        seen.append((number, tmp_path))
        assert number == 2

    with pytest.raises(BaseExceptionGroup, match=r"^2 of 3 rows fail:\nrow 0: .*'a'\nrow 2: ") as e:
        check(tmp_path=tmp_path)
    assert len(e.value.exceptions) == 2
    assert len(str(e.value)) < 200
    assert seen == [(number, tmp_path) for number in (1, 2, 3)]


def test_a_missing_error_is_a_failure_too():
    @each_row("text", ["1", "one"])
    def check(text):
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(BaseExceptionGroup, match=r"^1 of 2 rows fail:\nrow 0: text='1'"):
        check()


def test_a_table_without_rows_is_no_proof():
    @each_row("text", [])
    def check(text):
        pass

    with pytest.raises(AssertionError, match="proves nothing"):
        check()


@each_row("text", ["a", "b"])
def test_fixtures_are_given_as_in_any_test(tmp_path, text):
    (tmp_path / text).touch()
    assert text in {path.name for path in tmp_path.iterdir()}
