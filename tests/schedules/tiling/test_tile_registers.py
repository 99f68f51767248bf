"""Which register holds what, and what the processor is told of them."""

import itertools

import pytest

from autopipe.schedules.analysis.tile_products import REGISTERS
from autopipe.schedules.tiling.tile_registers import Registers, Strip, split_into_strips


def parts(lines, width, pitch):
    found = split_into_strips(lines, width, pitch)
    assert found is not None
    return found


TWO = parts(2, 14, None)
FOUR = parts(7, 7, 9)


def test_strips_are_equal_parts_of_lines():
    assert (Strip(0, 0, 14), Strip(1, 0, 14)) == TWO
    assert split_into_strips(1, 56, None) == tuple(Strip(0, 14 * part, 14) for part in range(4))
    assert split_into_strips(2, 17, None) is None
    assert split_into_strips(1, 27, None) == (Strip(0, 0, 14), Strip(0, 14, 13))


def test_flat_strips_run_over_the_ends_of_lines():
    assert (Strip(0, 0, 16), Strip(1, 7, 16), Strip(3, 5, 16), Strip(5, 3, 13)) == FOUR


def test_two_by_two_keep_the_input():
    registers = Registers(TWO, 2)
    assert registers.fit
    assert [registers.sums(*each) for each in itertools.product(range(2), range(2))] == [0, 1, 2, 3]
    assert [registers.given(strip) for strip in range(2)] == [4, 5]
    assert [registers.weights(vector) for vector in range(2)] == [6, 7]


def test_a_lower_tile_has_a_register_alone():
    registers = Registers(FOUR, 1)
    assert registers.fit
    assert [registers.given(strip) for strip in range(4)] == [4, 5, 4, 6]
    assert registers.weights(0) == 7


@pytest.mark.parametrize(("lines", "vectors", "fit"), [
    (1, 6, True), (1, 7, False), (2, 3, False), (3, 1, True), (6, 1, True), (7, 1, False),
    (2, 2, True), (3, 2, False),
])  # fmt: skip
def test_eight_registers_are_there(lines, vectors, fit):
    assert Registers(parts(lines, 14, None), vectors).fit == fit


@pytest.mark.parametrize("registers", [Registers(TWO, 2), Registers(FOUR, 1), Registers(TWO, 1)])
def test_shapes_fit_each_other(registers):
    """A product takes sums of as many rows as the input has, and as deep weights."""
    told = registers.configuration(48)
    assert (len(told), told[0], sum(told[1:16])) == (64, 1, 0)
    heights = told[48 : 48 + REGISTERS]
    widths = [int.from_bytes(told[16 + 2 * at : 18 + 2 * at], "little") for at in range(REGISTERS)]
    for (at, strip), vector in itertools.product(
        enumerate(registers.strips), range(registers.vectors)
    ):
        sums, weights = registers.sums(at, vector), registers.weights(vector)
        assert (heights[sums], widths[sums]) == (strip.rows, 64)
        assert (heights[registers.given(at)], widths[registers.given(at)]) == (strip.rows, 48)
        assert (heights[weights], widths[weights]) == (12, 64)
    assert len({*map(registers.given, range(len(registers.strips)))} | {
        registers.weights(vector) for vector in range(registers.vectors)
    }) <= REGISTERS - len(registers.strips) * registers.vectors  # fmt: skip
