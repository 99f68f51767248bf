"""Sizes of tiles and vectors, as in the examples of the docstrings."""

from dataclasses import replace

import pytest

from autopipe.environment.machines import MACHINES
from autopipe.schedules.cost import step_cycles
from autopipe.schedules.hardware import HardwareParams
from autopipe.schedules.templates.template import knob_values
from autopipe.schedules.tiling import tile_levels
from autopipe.schedules.tiling.form import Contraction
from autopipe.schedules.tiling.lines import Lines
from autopipe.schedules.tiling.promise import choose_tile, estimate_cycles, list_settings
from autopipe.schedules.tiling.tile import Tile, list_tiles

WIDE = HardwareParams(
    vector_bits=512, registers=32, cores=2, machine=MACHINES["intel-sapphire-rapids"]
)
NARROW = HardwareParams(vector_bits=256, registers=16, cores=2)


def product(rows, columns, *, padded=True, terms=64):
    """Return a matrix product whose operand is packed, and padded to whole vectors or not."""
    lines = Lines((0,), (1,), columns, (), 1, (True,), free=True, alone=padded)
    return Contraction("sum", (), (), (), (rows, columns), (terms,), 32, lines)


def test_rows_cut_an_extent_without_waste():
    sizes = {tile.rows for tile in list_tiles(product(56, 32), WIDE) if tile.columns == 32}
    assert sorted(sizes) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]


def test_vectors_are_the_longest_and_its_half():
    def widths(columns, *, padded):
        return {tile.width for tile in list_tiles(product(8, columns, padded=padded), WIDE)}

    assert widths(19, padded=False) == {8, 16}
    assert widths(3, padded=False) == {1, 2}
    assert widths(3, padded=True) == {2, 4}


def test_a_step_takes_as_long_as_what_there_is_most_of():
    tile = Tile(rows=6, columns=32, width=16, packed=True, outer="columns", unroll=1, ahead=48)
    one, two = (estimate_cycles(product(6, 32, terms=terms), tile, WIDE) for terms in (64, 65))
    assert two - one == 6.5


def test_both_orders_of_loops_are_tried_where_there_are_many_tiles_both_ways():
    orders = {(tile.columns < 96, tile.outer) for tile in list_tiles(product(6, 96), WIDE)}
    assert (True, "rows") in orders
    assert (False, "rows") not in orders


def test_what_a_tile_writes_is_fetched_where_the_nearest_cache_has_no_room_for_it():
    assert choose_tile(product(128, 96), WIDE).fetched
    assert not choose_tile(product(64, 96), WIDE).fetched


def test_packed_weights_are_fetched_six_kilobytes_ahead_but_not_where_units_are_halves():
    some = product(128, 384, terms=384)
    tile = choose_tile(some, WIDE)
    assert tile.packed
    assert tile.ahead * tile.columns * 4 == 6 << 10
    zen4, zen5 = (replace(WIDE, machine=MACHINES[family]) for family in ("zen-4", "zen-5"))
    assert choose_tile(some, zen4) == replace(tile, ahead=0, unroll=1)
    assert choose_tile(some, zen5) == replace(tile, unroll=1)
    assert choose_tile(some, replace(WIDE, vector_bits=256)).ahead == 0
    assert choose_tile(some, NARROW).ahead == 0
    own = replace(some, lines=replace(some.lines, free=False))
    assert {tile.ahead for tile in list_tiles(own, WIDE)} == {0}


def test_a_tile_of_one_vector_leaves_registers_for_two_steps():
    tile = Tile(rows=13, columns=8, width=8, packed=True, outer="columns", unroll=1)
    times = [
        estimate_cycles(product(rows, 8, terms=1), replace(tile, rows=rows), NARROW)
        for rows in (13, 12, 8, 7)
    ]
    assert times[0] - times[1] == pytest.approx(0.5 + 2 + 1.1)
    assert times[2] - times[3] == pytest.approx(0.5 + 2)
    assert choose_tile(product(13, 128, terms=800), NARROW).rows < 13
    assert choose_tile(product(196, 56, terms=480), NARROW).columns > 8


def test_strips_that_share_a_line_of_the_result_follow_each_other():
    alone = replace(NARROW, cores=1)  # several cores divide rows here anyway
    shared, whole = (choose_tile(product(256, columns, terms=104), alone) for columns in (104, 112))
    assert (shared.outer, whole.outer) == ("rows", "columns")
    few = choose_tile(product(49, 440, terms=440), alone)
    assert few.rows < 4
    assert few.outer == "columns"


def test_strips_come_first_where_the_nearest_cache_holds_the_weights():
    assert choose_tile(product(4096, 64, terms=27), WIDE).outer == "rows"
    assert choose_tile(product(4096, 512, terms=2048), WIDE).outer == "columns"


def test_cores_divide_rows_where_the_weights_are_less_than_what_they_share():
    few, many = product(196, 384, terms=64), product(128, 384, terms=384)
    assert choose_tile(few, WIDE).outer == "rows"
    assert choose_tile(few, replace(WIDE, cores=1)).outer == "columns"
    assert choose_tile(many, WIDE).outer == "columns"


def test_records_leave_out_a_knob_at_its_default():
    tile = Tile(rows=6, columns=32, width=16, packed=True, outer="columns", unroll=1)
    assert knob_values(tile).keys().isdisjoint({"fetched", "ahead"})
    assert knob_values(replace(tile, fetched=True)) == {**knob_values(tile), "fetched": True}


@pytest.mark.parametrize(
    ("family", "weights", "outer"),
    [
        ("intel-sapphire-rapids", 1 << 20, "rows"),
        ("intel-sapphire-rapids", 16 << 20, "columns"),
        ("intel-sapphire-rapids", None, "columns"),
        ("zen-5", 1 << 20, "columns"),
    ],
)
def test_cores_on_a_mesh_read_more_weights_that_are_near_for_rows_of_their_own(
    family, weights, outer
):
    hardware = replace(WIDE, machine=MACHINES[family], weights=weights)
    assert choose_tile(product(64, 128, terms=256), hardware).outer == outer


def test_some_steps_are_written_out_on_a_mesh():
    assert choose_tile(product(64, 128, terms=256), WIDE).unroll == 4
    assert choose_tile(product(64, 128, terms=255), WIDE).unroll == 1
    assert choose_tile(product(64, 128, terms=256), NARROW).unroll == 1


@pytest.mark.parametrize(("steps", "choices", "chosen"), [
    (64, {None}, None),  # 2 us on one thread: a second one takes as long to start
    (128, {None, 1 << 18}, None),  # 4.4 us: a search may find out
    (256, {None, 1 << 19}, 1 << 19),  # 8.9 us
    (512, {None}, None),  # threads share it anyway
])  # fmt: skip
def test_threads_share_few_products_where_a_second_one_pays(steps, choices, chosen):
    zen4 = replace(WIDE, machine=MACHINES["zen-4"])
    some = product(8, 256, terms=steps)
    assert {tile.shared_from for tile in list_settings(some, zen4)} == choices
    assert choose_tile(some, zen4).shared_from == chosen
    assert {tile.shared_from for tile in list_settings(some, replace(zen4, cores=1))} == {None}


def test_a_single_tile_is_shared_by_no_threads():
    zen4 = replace(WIDE, machine=MACHINES["zen-4"])
    for tile in list_settings(product(8, 32, terms=2048), zen4):
        assert tile.shared_from is None or tile.rows < 8 or tile.columns < 32


def test_divisors_of_tiles_for_few_rows_and_columns_take_the_fewest_cycles():
    """Rows and columns that are fewer than a whole tile has are covered by the next smaller one."""

    def cover(sizes, most, cost):
        """Add the cost of tiles of the largest size that fits, for 1 to `most` - 1 elements."""
        return sum(
            -(-count // size) * cost(size)
            for count in range(1, most)
            for size in [max(size for size in sizes if size <= count)]
        )

    zen4 = MACHINES["zen-4"]
    cycles = {
        divisor: cover(
            (12 // divisor, 1), 12, lambda rows: 0.5 + step_cycles(zen4, 2 * rows, 2 + rows, 4)
        )
        for divisor in (2, 3, 4)
    }
    vectors = {divisor: cover((16 // divisor, 1), 16, lambda _: 1) for divisor in (2, 4, 8)}
    assert cycles == {2: 139.0, 3: 108.0, 4: 121.5}
    assert vectors == {2: 43, 4: 39, 8: 64}
    assert min(cycles, key=cycles.__getitem__) == tile_levels._FEWER
    assert min(vectors, key=vectors.__getitem__) == tile_levels._NARROWER
