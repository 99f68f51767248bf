"""Which caches a trial finds, and that times of two clocks are never compared."""

from autopipe.artifacts.tuning import BestRecord, TuningResult
from autopipe.measure.caches import LARGEST
from autopipe.measure.measurement import Measurement, Surroundings
from autopipe.records.proofs import list_proofs
from autopipe.records.record import Platform
from autopipe.records.session import Session
from autopipe.records.store import RecordStore
from autopipe.report.records import format_platform
from autopipe.tasks.tensor import Tensor
from autopipe.tuning.clock import describe_surroundings, estimate_touched_bytes, name_clock
from autopipe.tuning.evidence import Proposal
from autopipe.tuning.journal import Journal
from tests.schedules.tasks import task
from tests.tuning.states import ANSOR, HERE, state

MIB = 1 << 20


def dense(weight, activation, *, calls=1, label=""):
    """A task that reads activations and weights of so many MiB."""
    sizes = activation * MIB // 8, weight * MIB // 4, activation * MIB // 8
    x, w, y = (Tensor(shape=(size,), dtype="float32") for size in sizes)
    return task(calls=calls).model_copy(
        update={"inputs": (x, w), "outputs": (y,), "weights": (1,), "functions": (f"f{label}",),
                "bytes": x.bytes + w.bytes + y.bytes}
    )  # fmt: skip


def test_a_model_touches_its_weights_and_its_largest_activations():
    assert estimate_touched_bytes([dense(3, 1)]) == 4 * MIB
    assert estimate_touched_bytes([dense(3, 1), dense(1, 4)]) == 8 * MIB
    assert estimate_touched_bytes([dense(3, 1, calls=5)]) == 16 * MIB
    assert estimate_touched_bytes([dense(40, 1, calls=5)]) == LARGEST
    assert estimate_touched_bytes([dense(4, 1)]) == 4 * MIB
    assert estimate_touched_bytes([]) == MIB


def test_of_several_libraries_only_one_runs():
    assert estimate_touched_bytes([dense(7, 1, label="@64"), dense(7, 1, label="")]) == 8 * MIB


def test_a_kernel_that_is_listed_at_likely_sizes_as_well_has_its_weights_once():
    static, opened = dense(7, 1), dense(7, 1)
    at_likely = dense(7, 1, label="@100")
    assert estimate_touched_bytes([static, opened, at_likely]) == 16 * MIB


def test_what_is_no_weight_was_written_by_the_kernel_before():
    assert describe_surroundings(dense(1, 1), MIB) == Surroundings(MIB, (0,), (1,))


def test_times_of_another_clock_are_those_of_another_platform(tmp_path):
    clocks = [name_clock(size) for size in (0, MIB, 2 * MIB)]
    assert clocks == [None, "model, 1 MiB", "model, 2 MiB"]
    assert len({HERE.timed_by(clock) for clock in clocks}) == 3
    assert HERE.timed_by(None) is HERE
    timed, proposal = state(), Proposal(ANSOR, "[]")
    with RecordStore.open(tmp_path / "records.sqlite", print) as store:
        for clock in clocks[:2]:
            journal = Journal(store, HERE.timed_by(clock), Session.resume(tmp_path), clock)
            assert journal.winner(timed) is None
            journal.write(timed, proposal, Measurement((1e-3,) if clock else (1e-2,)))
            assert len(journal.rows(timed)) == 1
        report = TuningResult.untuned().report
        proven = {
            clock: list_proofs(store, HERE, {timed.task.workload: record(clock)}, report)
            for clock in clocks
        }
    assert [proof and proof[timed.task.workload].seconds for proof in proven.values()] == [
        1e-2, 1e-3, {},
    ]  # fmt: skip


def record(clock):
    """The record of a lock that says which clock its time is of."""
    return BestRecord(
        workload=state().task.workload, engine="ansor", implementation="direct", schedule="[]",
        seconds=(1e-3,), trials=1, clock=clock,
    )  # fmt: skip


def test_a_platform_without_a_device_has_a_clock_as_well():
    assert Platform("{}", "{}", "").timed_by("model, 1 MiB").device == '{"clock":"model, 1 MiB"}'


def test_a_list_of_records_says_by_which_clock():
    assert format_platform(HERE.timed_by("model, 2 MiB")).endswith("; clock model, 2 MiB")
    assert "clock" not in format_platform(HERE)
