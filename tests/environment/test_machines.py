"""The table of machines: the facts of each family, and the row of a processor that is in none."""

import pytest

from autopipe.config.processors import PROCESSORS
from autopipe.environment.machines import (
    KIB,
    MACHINES,
    MIB,
    Machine,
    derive_machine,
    find_machine,
)

# processor, architecture, family, L1, L2, FMA latency, bits of units, ports, mesh, prefetch
FACTS = [
    ("x86-64", "x86_64", "x86-64", 32, 512, 4, 128, 2, False, False),
    ("znver1", "x86_64", "zen-1", 32, 512, 4, 128, 2, False, False),
    ("znver2", "x86_64", "zen-2", 32, 512, 4, 256, 2, False, False),
    ("znver3", "x86_64", "zen-3", 32, 512, 4, 256, 2, False, False),
    ("znver4", "x86_64", "zen-4", 32, 1024, 4, 256, 2, False, False),
    ("znver5", "x86_64", "zen-5", 48, 1024, 4, 512, 2, False, True),
    ("haswell", "x86_64", "intel-haswell", 32, 256, 4, 256, 2, False, False),
    ("skylake", "x86_64", "intel-client", 32, 256, 4, 256, 2, False, False),
    ("raptorlake", "x86_64", "intel-hybrid", 32, 512, 4, 256, 2, False, False),
    ("arrowlake-s", "x86_64", "intel-hybrid", 32, 512, 4, 256, 2, False, False),
    ("rocketlake", "x86_64", "intel-client-avx512", 32, 512, 4, 256, 2, True, True),
    ("skylake-avx512", "x86_64", "intel-skylake-server", 32, 1024, 4, 512, 2, True, True),
    ("skx", "x86_64", "intel-skylake-server", 32, 1024, 4, 512, 2, True, True),
    ("icelake_server", "x86_64", "intel-ice-lake-server", 48, 1280, 4, 512, 2, True, True),
    ("sapphirerapids", "x86_64", "intel-sapphire-rapids", 48, 2048, 4, 512, 2, True, True),
    ("graniterapids-d", "x86_64", "intel-sapphire-rapids", 48, 2048, 4, 512, 2, True, True),
    ("knl", "x86_64", "intel-xeon-phi", 32, 512, 6, 512, 2, True, True),
    ("generic", "aarch64", "aarch64", 32, 512, 4, 128, 2, False, False),
    ("cortex-a76", "aarch64", "cortex-a7x", 64, 512, 4, 128, 2, False, False),
    ("neoverse-n1", "aarch64", "neoverse-n1", 64, 1024, 4, 128, 2, False, False),
    ("neoverse-n2", "aarch64", "neoverse-n2", 64, 1024, 4, 128, 2, False, False),
    ("neoverse-v1", "aarch64", "neoverse-v1", 64, 1024, 4, 128, 4, False, False),
    ("neoverse-v2", "aarch64", "neoverse-v2", 64, 1024, 4, 128, 4, False, False),
]


@pytest.mark.parametrize("facts", FACTS, ids=lambda facts: facts[0])
def test_a_processor_has_the_facts_of_its_family(facts) -> None:
    mcpu, architecture, family, *numbers = facts
    row = find_machine(mcpu, architecture)
    assert row.family == family
    assert [
        row.l1_bytes // KIB, row.l2_bytes // KIB, row.fma_latency_cycles,
        row.vector_bits_of_units, row.fma_ports, row.has_mesh, row.wants_prefetch,
    ] == numbers  # fmt: skip


def test_each_row_has_a_processor_above() -> None:
    assert {family for _, _, family, *_ in FACTS} == set(MACHINES)


@pytest.mark.parametrize("row", MACHINES.values(), ids=lambda row: row.family)
def test_the_numbers_of_a_row_are_possible(row: Machine) -> None:
    numbers = [getattr(row, name) for name in row._fields]
    assert all(number > 0 for number in numbers if type(number) in {int, float})
    assert row.l1_bytes < row.l2_bytes < row.l3_bytes <= 64 * MIB
    assert row.l1_bytes_per_cycle >= row.l2_bytes_per_cycle >= row.l3_bytes_per_cycle
    assert row.l3_bytes_per_cycle * row.frequency_ghz > row.memory_bytes_per_ns
    assert row.line_bytes == MACHINES["x86-64"].line_bytes


def test_every_name_of_a_row_is_one_that_llvm_knows() -> None:
    names = [name for row in MACHINES.values() for name in row.processors]
    assert len(names) == len(set(names))
    for name in names:
        assert any(known.startswith(name.removesuffix("*")) for known in PROCESSORS), name


@pytest.mark.parametrize(
    ("mcpu", "architecture", "features", "facts"),
    [
        ("x86-64-v4", "x86_64", {"avx", "avx512f", "sse4a"}, ("x86-64", 512, True)),
        ("bdver4", "x86_64", {"avx", "sse4a"}, ("x86-64", 256, False)),
        ("core2", "x86_64", {"sse2"}, ("x86-64", 128, False)),
        ("apple-m4", "aarch64", {"neon"}, ("aarch64", 128, False)),
        ("sifive-u74", "riscv64", set(), ("aarch64", 128, False)),
    ],
)
def test_a_processor_in_no_row_gets_what_its_features_say(
    mcpu, architecture, features, facts
) -> None:
    row = find_machine(mcpu, architecture, features)
    assert row == derive_machine(architecture, features)
    assert (row.family, row.vector_bits_of_units, row.wants_prefetch) == facts
    assert not row.has_mesh
    assert row.l2_bytes == MACHINES[row.family].l2_bytes
