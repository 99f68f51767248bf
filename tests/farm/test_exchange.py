"""Who gets which order, without a network."""

import pytest

from autopipe.farm import exchange
from autopipe.farm.exchange import ConnectedRun, ConnectedWorker, Exchange, SharedOrder
from autopipe.farm.wire import WorkAnswer
from tests.farm.sleeping import FACTS


class Peers:
    """An exchange, and what it has told each peer."""

    def __init__(self):
        self.exchange = Exchange()
        self.told = {}

    def worker(self, name, slots=1, label="zen5"):
        self.told[name] = []
        worker = ConnectedWorker(name, label, FACTS, slots, self.told[name].append)
        assert self.exchange.find_refusal(worker) is None
        self.exchange.admit(worker)
        return worker

    def run(self, name, label="zen5"):
        self.told[name] = []
        run = ConnectedRun(label, self.told[name].append)
        self.exchange.enter(run)
        return run

    def submit(self, run, number, identity=None, failed=0):
        shared = SharedOrder(f"order {number}", 5.0, (run.label, identity or str(number)), failed)
        self.exchange.submit(run, number, shared)

    def orders(self, name):
        return [message["text"] for message in self.told[name] if "order" in message]

    def answers(self, name):
        return [message for message in self.told[name] if "answer" in message]


@pytest.fixture
def peers():
    return Peers()


def answer(peers, worker, text="done"):
    """Have a worker answer the oldest order in its hands."""
    peers.exchange.answer(worker, next(iter(worker.hands)), text)


def test_runs_take_turns_trial_by_trial(peers):
    one, other = peers.run("one"), peers.run("other")
    for number in range(4):
        peers.submit(one, number)
    for number in (10, 11):
        peers.submit(other, number)
    worker = peers.worker("a")
    for _ in range(6):
        answer(peers, worker)
    found = peers.orders("a")
    assert found == [f"order {number}" for number in (0, 10, 1, 11, 2, 3)]


def test_orders_are_spread_over_workers_and_their_labels_are_kept(peers):
    for name in ("a", "b"):
        peers.worker(name, slots=2)
    peers.worker("c", slots=2, label="zen4")
    run = peers.run("run")
    for number in range(5):
        peers.submit(run, number)
    assert [len(peers.orders(name)) for name in "abc"] == [2, 2, 0]


@pytest.mark.fault("O1")
def test_an_order_whose_workers_die_three_times_is_a_failure(peers):
    run = peers.run("run")
    peers.submit(run, 7)
    for name in "abc":
        worker = peers.worker(name)
        assert peers.orders(name) == ["order 7"]
        assert peers.answers("run") == []
        peers.exchange.dismiss(worker)
    assert peers.answers("run") == [{"answer": 7, "error": "its worker died"}]
    peers.worker("d")
    assert peers.orders("d") == []


def test_equal_orders_of_two_runs_are_done_once_and_nothing_is_kept(peers):
    one, other = peers.run("one"), peers.run("other")
    peers.submit(one, 1, "same")
    worker = peers.worker("a")
    peers.submit(other, 2, "same")
    answer(peers, worker)
    assert [peers.answers(name)[0]["answer"] for name in ("one", "other")] == [1, 2]
    assert peers.orders("a") == ["order 1"]
    peers.submit(other, 3, "same")
    assert len(peers.orders("a")) == 2


@pytest.mark.fault("O12")
def test_what_a_run_gave_up_is_not_done_but_for_others(peers):
    one, other = peers.run("one"), peers.run("other")
    for number, identity in ((1, "same"), (2, "own"), (3, "third")):
        peers.submit(one, number, identity)
    peers.submit(other, 9, "same")
    peers.exchange.cancel(one, [3])
    peers.exchange.depart(one)
    worker = peers.worker("a", slots=4)
    assert peers.orders("a") == ["order 1"]
    answer(peers, worker)
    assert [message["answer"] for message in peers.answers("other")] == [9]
    assert peers.exchange._shared == {}


def test_nothing_is_open_once_it_is_answered_failed_or_given_up(peers):
    run, worker = peers.run("run"), peers.worker("a")
    for number in range(3):
        peers.submit(run, number)
    answer(peers, worker)
    peers.exchange.dismiss(worker)
    for name in "bc":
        peers.exchange.dismiss(peers.worker(name))
    peers.exchange.cancel(run, [2, 7])
    assert run.open == peers.exchange._shared == {}


def test_a_number_that_is_open_is_no_number_for_another_order(peers):
    run = peers.run("run")
    peers.submit(run, 1)
    with pytest.raises(ValueError, match="submitted twice"):
        peers.submit(run, 1, "other")


@pytest.mark.fault("O4")
def test_a_worker_that_a_run_rejects_gets_orders_of_other_runs_only(peers):
    one, other = peers.run("one"), peers.run("other")
    worker = peers.worker("a")
    peers.exchange.reject(one, "a")
    peers.submit(one, 1, failed=1)
    peers.submit(other, 2)
    assert peers.orders("a") == ["order 2"]
    answer(peers, worker)
    peers.worker("b")
    assert peers.orders("b") == ["order 1"]


@pytest.mark.fault("O13")
def test_the_orders_of_a_worker_that_breaks_the_protocol_are_answered_as_lost(peers):
    run, worker = peers.run("run"), peers.worker("a")
    peers.submit(run, 1)
    peers.exchange.dismiss(worker, "too long")
    (found,) = peers.answers("run")
    assert WorkAnswer.read(found["text"], 1).lost == "too long"
    assert found["by"] == "a"


@pytest.mark.fault("O16")
def test_an_answer_to_an_order_of_another_worker_is_none(peers):
    run, worker, other = peers.run("run"), peers.worker("a"), peers.worker("b")
    peers.submit(run, 1)
    (number,) = {**worker.hands, **other.hands}
    liar = other if worker.hands else worker
    with pytest.raises(LookupError):
        peers.exchange.answer(liar, number, "done")


@pytest.mark.fault("O16")
@pytest.mark.parametrize("slots", [0, 5])
def test_a_worker_takes_no_more_orders_than_its_cores_allow(peers, slots):
    worker = ConnectedWorker("a", "zen5", FACTS, slots, lambda _: None)
    assert "of 4 at most" in str(peers.exchange.find_refusal(worker))


@pytest.mark.fault("O4")
def test_a_worker_that_answers_nothing_is_overdue_only_with_orders(peers, monkeypatch):
    run, worker = peers.run("run"), peers.worker("a")
    clock = [1000.0]
    monkeypatch.setattr(exchange, "monotonic", lambda: clock[0])
    assert not worker.is_overdue
    peers.submit(run, 1)
    clock[0] += 2 * 5.0 + exchange.PATIENCE
    assert not worker.is_overdue
    clock[0] += 1.0
    assert worker.is_overdue
