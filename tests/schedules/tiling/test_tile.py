"""Sizes of tiles and vectors, as in the examples of the docstrings."""

from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.lines import Lines
from autopipe.schedules.tiling.promise import estimate
from autopipe.schedules.tiling.tile import Tile, settings, shapes

WIDE = HardwareParams(vector_bits=512, registers=32, cores=2)


def product(rows, columns, *, padded=True, terms=64):
    """Return a matrix product whose operand is packed, and padded to whole vectors or not."""
    lines = Lines((0,), (1,), columns, (), 1, (True,), free=True, alone=padded)
    return Contraction("sum", (), (), (), (rows, columns), (terms,), 32, lines)


def test_rows_cut_an_extent_without_waste():
    sizes = {rows for rows, columns, *_ in shapes(product(56, 32), WIDE) if columns == 32}
    assert sorted(sizes) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]


def test_vectors_are_at_least_a_quarter_of_the_longest():
    def widths(columns, *, padded):
        return {width for _, _, width, _ in shapes(product(8, columns, padded=padded), WIDE)}

    assert widths(19, padded=False) == {4, 8, 16}
    assert widths(3, padded=False) == {1, 2}
    assert widths(3, padded=True) == {1, 2, 4}


def test_a_step_takes_as_long_as_what_there_is_most_of():
    tile = Tile(rows=6, columns=32, width=16, packed=True, outer="columns", unroll=1)
    one, two = (estimate(product(6, 32, terms=terms), tile, WIDE) for terms in (64, 65))
    assert two - one == 6.5


def test_both_orders_of_loops_are_tried_where_there_are_many_tiles_both_ways():
    orders = {(tile.columns < 96, tile.outer) for tile in settings(product(6, 96), WIDE)}
    assert (True, "rows") in orders
    assert (False, "rows") not in orders
