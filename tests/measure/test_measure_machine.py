import pytest
import tvm

from autopipe.measure import measure_machine
from autopipe.measure.measure_machine import _Bench


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Return what makes the bench of a machine, on which every kernel takes 1 ms."""
    monkeypatch.setattr(_Bench, "_timer", lambda *_: lambda: 1_000_000)
    monkeypatch.setattr(measure_machine, "_bind_threads", lambda: None)
    return lambda cores: _Bench(tvm.target.Target("llvm"), cores, tmp_path)


def describe(folder, level, size, kind="Data"):
    index = folder / f"index{level}"
    index.mkdir()
    for name, text in {
        "level": f"{level}", "type": kind, "size": size, "coherency_line_size": "128",
    }.items():  # fmt: skip
        (index / name).write_text(f"{text}\n")


def test_one_core_and_a_silent_system_leave_numbers_out_with_the_reason(bench) -> None:
    numbers = {number.name: number for number in bench(1).numbers()}
    left_out = {name: one.source for name, one in numbers.items() if one.value is None}
    assert left_out == {
        "line_bytes": "not measured: the system names none",
        "l1_bytes": "not measured: the system names none",
        "l2_bytes": "not measured: the system names none",
        "l3_bytes": "not measured: the system names none",
        "l1_bytes_per_cycle": "not measured: the size of the cache is not known",
        "l2_bytes_per_cycle": "not measured: the size of the cache is not known",
        "l3_bytes_per_cycle": "not measured: the size of the cache is not known",
        "copy_bytes_per_ns": "not measured: the size of the cache is not known",
        "memory_bytes_per_ns": "not measured: the size of the cache is not known",
        "thread_start_ns": "not measured: one core",
        "shared_line_ns": "not measured: one core",
    }
    assert numbers["frequency_ghz"].value == pytest.approx(0.2), "two cycles in 10 ns"


def test_what_the_system_tells_is_not_measured(bench, tmp_path) -> None:
    describe(tmp_path, 0, "1K", "Instruction")
    for level, size in enumerate(("16K", "256K", "1M"), start=1):
        describe(tmp_path, level, size)
    numbers = {number.name: number for number in bench(2).numbers()}
    sizes = [numbers[f"l{level}_bytes"] for level in (1, 2, 3)]
    assert [size.value for size in sizes] == [16 << 10, 256 << 10, 1 << 20]
    assert numbers["line_bytes"].value == 128
    assert {size.source for size in sizes} == {"from the system"}
    assert all(number.value is not None for number in numbers.values())
