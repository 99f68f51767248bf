import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from autopipe.api.machine_report import compare_numbers, measure_here
from autopipe.environment.machines import MACHINES, find_machine
from autopipe.errors import SetupError
from autopipe.measure.machine_numbers import Number

ROW = find_machine("znver4", "x86_64")


def report(*numbers: Number, row=ROW):
    return compare_numbers("znver4", [asdict(number) for number in numbers], row)


def test_a_number_that_the_row_has_wrong_is_marked() -> None:
    found = report(
        Number("frequency_ghz", 1.4 * ROW.frequency_ghz), Number("thread_start_ns", 1e5),
        Number("shared_line_ns", ROW.shared_line_ns / 1.6),
    )  # fmt: skip
    lines = list(found.lines())
    assert lines[0] == "znver4: row zen-4"
    assert [line for line in lines if "OFF" in line] == lines[3:5]
    assert lines[3] == "thread_start_ns          100000      2000   50.00  OFF, measured"
    assert lines[-1] == "the table is off in 2 of 3: thread_start_ns, shared_line_ns"
    assert [one["is_off"] for one in found.fields()["numbers"]] == [False, True, True]


def test_a_count_is_off_unless_it_is_equal() -> None:
    latency = ROW.fma_latency_cycles
    found = report(
        Number("fma_latency_cycles", latency + 0.3), Number("fma_latency_cycles", latency + 1)
    )
    assert [number.is_off for number in found.numbers] == [False, True]


def test_what_was_not_measured_says_why_and_is_not_off() -> None:
    found = report(Number("thread_start_ns", None, "not measured: one core"))
    assert list(found.lines())[2:] == [
        "thread_start_ns               -      2000       -  not measured: one core",
        "the table is within a factor of 1.5 of all that was measured",
    ]


def test_a_processor_without_a_row_is_derived() -> None:
    row = find_machine("nonesuch", "x86_64", {"avx"})
    assert next(report(row=row).lines()) == "znver4: derived as x86-64: no row names it"
    named = ROW._replace(family="own")
    assert next(report(row=named).lines()) == "znver4: row own"


def fail(*_):
    raise SetupError("TVM is not here")


def test_a_failure_of_the_child_is_raised() -> None:
    with pytest.raises(SetupError, match="TVM is not here"):
        measure_here(fail)


def test_every_measured_number_is_one_of_the_table() -> None:
    """This machine is measured once; its numbers are not judged here."""
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "doctor", "--machine", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["row"] in MACHINES
    numbers = {number["name"]: number for number in found["numbers"]}
    planned = {
        "family", "processors", "barrier_ns", "has_mesh", "memory_operands", "wants_prefetch",
    }  # fmt: skip
    assert numbers.keys() == set(ROW._fields) - planned
    for name in ("frequency_ghz", "fma_latency_cycles", "l1_bytes_per_cycle"):
        assert numbers[name]["measured"] > 0
        assert numbers[name]["source"] == "measured"


def test_it_takes_no_pipeline() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autopipe", "doctor", "--machine", "some.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--machine takes neither a pipeline file nor --cluster" in done.stderr
