import pytest

from autopipe.measure.machine_numbers import compute_frequency_ghz, find_cache_sizes, find_fma_units

KIB = 1024


def test_the_frequency_follows_from_two_cycles_a_step() -> None:
    assert compute_frequency_ghz(0.5) == 4.0


@pytest.mark.parametrize(
    ("cycles", "units"),
    [
        ({128: 0.5, 256: 0.5, 512: 1.0}, (256, 2)),  # Zen 4
        ({128: 0.5, 256: 0.51, 512: 0.49}, (512, 2)),  # Zen 5, with noise
        ({128: 0.5, 256: 0.5, 512: 0.98}, (256, 2)),
        ({128: 0.5, 256: 1.01}, (128, 2)),  # Zen 1
        ({128: 0.25}, (128, 4)),  # Neoverse V1
        ({128: 2.0}, (128, 1)),
    ],
)
def test_a_unit_is_as_long_as_the_longest_vector_that_issues_at_its_rate(cycles, units) -> None:
    assert find_fma_units(cycles) == units


def test_a_cache_ends_where_loads_take_longer() -> None:
    chase = [
        (16 * KIB, 1.1), (32 * KIB, 1.1), (48 * KIB, 2.6), (64 * KIB, 3.8), (512 * KIB, 4.0),
        (1024 * KIB, 5.4), (1536 * KIB, 11.0), (2048 * KIB, 14.0),
    ]  # fmt: skip
    assert find_cache_sizes(chase) == [32 * KIB, 1024 * KIB]
    assert find_cache_sizes(chase[:2]) == [], "a cache that did not end has no size"
