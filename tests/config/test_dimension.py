"""Dimensions whose size is open: what a pipeline file may say of them, and what is refused."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from autopipe.config.dimension import (
    Dimension,
    append_sizes,
    evaluate_size,
    format_sizes,
    list_end_sizes,
    list_likely_sizes,
    list_probe_sizes,
    parse_terms,
)
from autopipe.config.load import parse_builds
from autopipe.errors import ConfigError
from tests.support.table import each_row

HEIGHT = Dimension(min=33, max=1920, multiple=32, likely=(640, 320))


def test_the_ends_of_a_range_are_multiples():
    assert (HEIGHT.first, HEIGHT.last) == (64, 1920)
    assert Dimension(max=7, multiple=4, likely=(4,)).last == 4
    assert HEIGHT.range_text == "from 64 to 1920, a multiple of 32"
    assert Dimension(max=7, likely=(4,)).range_text == "from 1 to 7"


@each_row(
    "size, why",
    [
        (64, None), (1920, None), (32, "is not from 33 to 1920"), (1952, "is not from 33 to 1920"),
        (65, "is no multiple of 32"),
    ],
)  # fmt: skip
def test_a_size_fits_or_it_is_said_why_not(size, why):
    assert HEIGHT.refusal(size) == why


def test_likely_sizes_are_combined_with_each_other():
    batch = Dimension(max=8, likely=(1, 8))
    found = list_likely_sizes({"batch": batch, "height": HEIGHT})
    assert [tuple(sizes.values()) for sizes in found] == [(1, 640), (1, 320), (8, 640), (8, 320)]
    assert list_end_sizes({"batch": batch, "height": HEIGHT}) == (
        {"batch": 1, "height": 64}, {"batch": 8, "height": 1920},
    )  # fmt: skip
    assert list_likely_sizes({}) == list_end_sizes({}) == ()


def test_an_dynamic_size_may_be_a_sum():
    assert parse_terms("past+ new + 2") == ("past", "new", 2)
    assert evaluate_size("past + new + 2", {"past": 7, "new": 1}) == 10


SUMS = """
version: 1
name: m
model:
  path: m.onnx
  inputs:
    keys: {shape: [1, past, 8]}
    mask: {shape: [1, MASK]}
  dimensions:
    past: {max: 9, likely: [4]}
    new: {max: 9, likely: [1]}
"""


@each_row(
    "mask, why",
    [
        ("past + new", "model.dimensions.new: 'new' stands only in sums, which do not tell it"),
        ("past + other", "model.inputs.mask.shape.1: 'other' is not described"),
        ("2 + past", "model.inputs.mask.shape.1: '2 + past' should be a whole number"),
        ("past - 1", "model.inputs.mask.shape.1: 'past - 1' should be a whole number"),
        ("past + 0", "model.inputs.mask.shape.1: 'past + 0' should be a whole number"),
    ],
)
def test_a_sum_that_says_nothing_is_refused(mask, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        parse_builds(SUMS.replace("MASK", mask), Path("m.yaml"))


def test_a_sum_of_sizes_that_inputs_tell_is_taken():
    pipeline = parse_builds(SUMS.replace("1, MASK", "new, past+new"), Path("m.yaml"))[None]
    assert pipeline.model.inputs["mask"].shape == ("new", "past + new")
    assert pipeline.model.inputs["mask"].at({"past": 4, "new": 2}).shape == (2, 6)


def test_sizes_in_words():
    assert format_sizes({"height": 640, "width": 96}) == "height = 640, width = 96"
    assert append_sizes("case 'zeros'", {"batch": 3}) == "case 'zeros' with batch = 3"
    assert append_sizes("case 'zeros'", {}) == "case 'zeros'"


@each_row(
    "fields, why",
    [
        ({"min": 9, "max": 8, "likely": (8,)}, "min 9 is above max 8"),
        ({"min": 33, "max": 63, "multiple": 32, "likely": (33,)}, "no size from 33 to 63"),
        ({"max": 8, "likely": (9,)}, "likely: 9 is not from 1 to 8"),
        ({"max": 8, "multiple": 4, "likely": (6,)}, "likely: 6 is no multiple of 4"),
        ({"max": 8, "likely": (2, 2)}, "likely: a size is named twice"),
        ({"max": 8, "likely": ()}, "at least 1"),
        ({"max": 2**40, "likely": (1,)}, "less than or equal"),
        ({"min": -1, "max": 8, "likely": (1,)}, "greater than or equal to 0"),
        ({"min": 0, "max": 0, "likely": (1,)}, "greater than or equal to 1"),
    ],
)
def test_a_dimension_that_can_not_be_is_refused(fields, why):
    with pytest.raises(ValidationError, match=why):
        Dimension(**fields)


FILE = """
version: 1
name: m
model:
  {rest}
  path: m.onnx
  inputs: {{x: {{shape: [batch, 3]{value}}}}}
  dimensions: {{{dimensions}}}
"""
BATCH = "batch: {max: 8, likely: [4]}"


@pytest.mark.fault("A16")
@each_row(
    "given, why",
    [
        (
            {"dimensions": ""},
            "model.inputs.x.shape.0: 'batch' is not described in model.dimensions",
        ),
        (
            {"dimensions": f"{BATCH}, height: {{max: 8, likely: [4]}}"},
            "model.dimensions.height: 'height' stands in no shape of model.inputs",
        ),
        ({"dimensions": "batch: {min: 9, max: 8, likely: [8]}"}, "min 9 is above max 8"),
        ({"dimensions": "batch: {max: 8, likely: [16]}"}, "likely: 16 is not from 1 to 8"),
        ({"dimensions": "batch: {max: 8, multiple: 4, likely: [6]}"}, "6 is no multiple of 4"),
        ({"dimensions": "batch: {max: 9, likely: [1,2,3,4,5,6,7,8,9]}"}, "at most 8 items"),
        ({"dimensions": "2batch: {max: 8, likely: [4]}"}, "2batch"),
        ({"dimensions": f"{BATCH}, {BATCH}"}, "batch"),
        ({"dimensions": BATCH, "value": ", value: 3"}, "cannot be open where the input has"),
        (
            {"dimensions": BATCH, "rest": "format: tvmscript"},
            "are not supported by the format tvmscript",
        ),
    ],
)
def test_names_of_sizes_that_contradict_the_file_are_refused(tmp_path, given, why):
    text = FILE.format(**{"rest": "format: onnx", "value": "", **given})
    with pytest.raises(ConfigError) as caught:
        parse_builds(text, tmp_path / "m.yaml")
    assert caught.value.exit_code == 2
    assert why in str(caught.value), str(caught.value)


def test_a_model_is_looked_at_where_a_range_ends_and_beside_it():
    found = list_probe_sizes({"batch": Dimension(max=8, likely=(1, 8)), "height": HEIGHT})
    assert [tuple(sizes.values()) for sizes in found] == [
        (1, 64), (8, 1920), (2, 96), (7, 1888), (1, 640), (1, 320), (8, 640), (8, 320),
    ]  # fmt: skip
    one = {"batch": Dimension(min=4, max=4, likely=(4,))}
    assert list_probe_sizes(one) == ({"batch": 4},)
    assert list_probe_sizes({}) == ()
