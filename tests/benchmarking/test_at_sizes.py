from autopipe.benchmarking.at_sizes import choose_timed_sizes
from autopipe.config.dimension import Dimension
from tests.support.table import each_row

BATCH, LENGTH = Dimension(max=64, likely=(1, 8)), Dimension(max=512, likely=(128,))
HEIGHT = Dimension(min=32, max=1920, multiple=32, likely=(640,))


@each_row(
    "dimensions, sizes",
    [
        ({}, []),
        ({"h": HEIGHT}, [(640,), (256,), (1280,)]),
        ({"b": BATCH, "n": LENGTH}, [(1, 128), (8, 128), (8, 23), (2, 256)]),
        ({"b": BATCH}, [(1,), (8,), (7,), (2,)]),
        ({"b": Dimension(max=2, likely=(1,))}, [(1,), (2,)]),
        ({"b": Dimension(max=1, likely=(1,))}, [(1,)]),
        ({"b": Dimension(max=4, likely=(1, 2, 3, 4))}, [(1,), (2,), (3,), (4,)]),
    ],
)
def test_likely_sizes_come_first_then_a_middle_and_a_large_one(dimensions, sizes):
    assert [tuple(one.values()) for one in choose_timed_sizes(dimensions)] == sizes
