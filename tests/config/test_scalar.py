import pytest

from autopipe.config.scalar import check_quoted_scalar, parse_plain_scalar
from tests.support.table import each_row


@each_row(
    "text, value",
    [
        ("null", None),
        ("~", None),
        ("NULL", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-7", -7),
        ("+12", 12),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("1.5e+2", 150.0),
        ("0.25", 0.25),
        ("30m", "30m"),
        ("conv2d*", "conv2d*"),
        ("NHWC", "NHWC"),
        ("+avx512bf16", "+avx512bf16"),
        ("-", "-"),
        ("1.2.3", "1.2.3"),
        ("nULL", "nULL"),
        ("tRUE", "tRUE"),
        ("y", "y"),  # the name of many a model's output; only the letter of YAML 1.1 minds
        ("inf", "inf"),
        ("0x", "0x"),
        ("١٢", "١٢"),  # digits, but not YAML's
        ("${HOME}", "${HOME}"),
    ],
)
def test_a_plain_scalar_is_what_yaml_1_2_says(text, value):
    found = parse_plain_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.fault("A7")
@each_row(
    "text, hint",
    [
        ("", "null"),
        ("no", "true or false"),
        ("YES", "true or false"),
        ("On", "true or false"),
        ("off", "true or false"),
        (".nan", "finite"),
        (".NaN", "finite"),
        (".inf", "finite"),
        ("-.Inf", "finite"),
        ("1e400", "too large"),
        ("9" * 41, "41 characters"),
        ("9" * 10_000, "10000 characters"),
        ("12:30:00", "base 60"),
        ("1:30", "base 60"),
        ("2026-11-20", "date"),
        ("2026-1-2 10:00:00", "date"),
        ("2026-11-20T10:00:00Z", "date"),
        ("010", "decimal"),
        ("-012", "decimal"),
        ("007", "decimal"),
        ("01.5", "decimal"),
        ("0x1F", "decimal"),
        ("0o17", "decimal"),
        ("0b101", "decimal"),
        ("1_000", "underscores"),
        ("1_000.5", "underscores"),
        ("=", "quotes"),
        ("<<", "merge key"),
    ],
)
def test_what_yaml_readers_disagree_about_is_refused(text, hint):
    with pytest.raises(ValueError, match=hint):
        parse_plain_scalar(text)


def test_quoted_text_is_kept_as_it_is_written():
    assert check_quoted_scalar("no") == "no"
    assert check_quoted_scalar("1e3") == "1e3"
    assert check_quoted_scalar("ä\n") == "ä\n"


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_file_name_can_hold_is_refused(text):
    with pytest.raises(ValueError, match="NUL or half a character"):
        check_quoted_scalar(text)
