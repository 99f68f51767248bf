import pytest

from autopipe.report.units import format_count, format_seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (12e-9, "12 ns"),
        (3.4e-6, "3.4 us"),
        (0.00342, "3.42 ms"),
        (0.9999, "1000 ms"),
        (1, "1 s"),
        (12.34, "12.3 s"),
        (59.4, "59.4 s"),
        (59.6, "1m 00s"),
        (92, "1m 32s"),
        (3599.6, "1h 00m"),
        (7500, "2h 05m"),
    ],
)
def test_seconds(value, text):
    assert format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1000, "1 k"), (231_211_008, "231 M"), (3.9e9, "3.9 G"),
     (999_999, "1000 k"), (2e21, "2000000 P")],
)  # fmt: skip
def test_count(value, text):
    assert format_count(value) == text
