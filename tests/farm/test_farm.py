"""A farm on loopback: what goes wrong costs a trial's time, and never its result."""

import json
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from autopipe.api import farm as api
from autopipe.errors import SetupError, StageError
from autopipe.farm import farm as farms
from autopipe.farm.facts import fingerprint_device
from autopipe.farm.wire import WorkAnswer
from autopipe.measure.measurement import Measurement
from tests.farm.conftest import order, start, until


@pytest.fixture(scope="module")
def two(place):
    """Two workers of label `two`."""
    found = [place.begin("two") for _ in range(2)]
    for worker in found:
        until(worker, "works for")
    return found


def done(farm, numbers, *, within=40.0):
    """Return all answers, by number, and how long they took."""
    start, wanted = time.monotonic(), set(numbers)
    found: dict[int, WorkAnswer | str] = {}
    while wanted:
        assert time.monotonic() - start < within
        found |= farm.answered(wanted)
        wanted -= found.keys()
    return found


def times(answers):
    return [
        answer.measurements[0].median if isinstance(answer, WorkAnswer) else answer
        for _, answer in sorted(answers.items())
    ]


def _process(worker):
    """The number of a worker's process, which is in its name: `two-host-14833-261b`."""
    return int(worker.name.rsplit("-", 2)[1])


def test_trials_come_back_from_all_workers(place, two):
    with place.farm("two", workers=2) as (farm, told):
        assert farm.width == 8
        numbers = [farm.submit(order(time=1e-3 * n), 5.0) for n in range(1, 41)]
        assert times(done(farm, numbers)) == [1e-3 * n for n in range(1, 41)]
        assert told == []
        gone = [farm.submit(order(run=0.2), 5.0) for _ in range(20)]
        farm.cancel(gone)
        assert times(done(farm, [farm.submit(order(), 5.0)])) == [1e-3]
        heard: list[WorkAnswer | str] = []
        number = farm.submit(order(time=2e-3), 5.0, heard.append)
        while not heard:  # nobody asks for it
            farm.pump(1.0)
        assert list(done(farm, [number]).values()) == heard


def test_what_two_runs_ask_for_at_the_same_time_is_measured_once(place):
    place.work("once", AUTOPIPE_TEST_SAYS="counts")
    with place.farm("once") as (one, _), place.farm("once") as (other, _):
        orders = [order(run=0.2) for _ in range(4)]
        ours, theirs = ([farm.submit(each, 5.0) for each in orders] for farm in (one, other))
        found = times(done(one, ours))
        assert times(done(other, theirs)) == found
        assert sorted(found) == [1e-3, 2e-3, 3e-3, 4e-3]
        assert times(done(one, [one.submit(orders[0], 5.0)])) == [5e-3]  # nothing is kept


@pytest.mark.fault("O1", "O2", "O3")
def test_workers_that_are_killed_frozen_or_cut_off_cost_no_trial(place, two, proxy):
    killed, frozen = place.begin("two"), place.begin("two")
    lost = [killed, frozen, place.begin("two", proxy.address)]
    for worker in lost:
        until(worker, "works for")
    with place.farm("two", workers=5) as (farm, _):
        numbers = [farm.submit(order(build=0.1, run=0.05), 5.0) for _ in range(40)]
        first = farm.answered(numbers)
        killed.kill()
        frozen.send_signal(signal.SIGSTOP)
        proxy.dropping = True
        found = first | done(farm, set(numbers) - first.keys())
        assert times(found) == [1e-3] * 40
        frozen.send_signal(signal.SIGCONT)
        left = {worker.pid for worker in (*two, frozen)}  # it joins anew
        end = time.monotonic() + 60
        while (own := {_process(worker) for worker in farm.own}) != left and time.monotonic() < end:
            farm.pump(1.0)
        assert own == left
    for worker in lost:
        worker.kill()


@pytest.mark.slow
@pytest.mark.fault("O2", "O3")
def test_workers_in_networks_of_their_own_lose_a_link_and_freeze_and_come_back(tmp_path):
    apart = ("unshare", "--map-root-user", "--net")
    there = all(map(shutil.which, ("unshare", "ip", "nsenter")))
    if not there or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no network namespaces here")
    done = subprocess.run(
        [*apart, sys.executable, "-m", "tests.farm.network", str(tmp_path)],
        stdout=subprocess.PIPE, text=True, timeout=200, check=True,
    )  # fmt: skip
    for line, what in zip(done.stdout.splitlines(), ("link", "freeze"), strict=True):
        name, right, gap, workers = json.loads(line)
        assert (name, right, workers) == (what, 40, 2)
        assert gap < 35  # the timeout of a trial, and 30 s


@pytest.mark.fault("O4")
def test_workers_that_are_not_believed_get_no_more_trials(place, two):
    whys = {
        "rubbish": "its answer makes no sense",
        "lies": "its device is not that of its label",
        "hangs": "sent nothing for 1 s",
    }
    bad = {says: place.begin("two", AUTOPIPE_TEST_SAYS=says) for says in whys}
    for worker in bad.values():
        until(worker, "works for")
    with place.farm("two", workers=5) as (farm, told):
        (device,) = {fingerprint_device(worker.facts) for worker in farm.own}
        farm.expect(device)
        numbers = [farm.submit(order(run=0.05), 1.0) for _ in range(60)]
        found = times(done(farm, numbers))
        assert [time for time in found if time == 1e-3] == found
        for says, worker in bad.items():
            (text,) = [text for text in told if f"-{worker.pid}-" in text]
            assert whys[says] in text
            worker.kill()


@pytest.mark.fault("O4")
def test_where_nobody_is_believed_the_run_ends(place):
    bad = place.work("bad", AUTOPIPE_TEST_SAYS="rubbish")
    with place.farm("bad", wait_timeout=2.0) as (farm, told):
        number = farm.submit(order(), 5.0)
        with pytest.raises(StageError, match=r"label bad .* what was measured is kept"):
            done(farm, [number])
        assert "its answer makes no sense" in told[0]
    bad.kill()


@pytest.mark.fault("O5")
def test_a_worker_that_is_not_equal_is_refused_with_the_reason(place, two):
    refused = {
        '{"versions": {"tvm": "0.26"}}': "here is tvm 0.26 and not 0.27",
        '{"device": {"cpu": "a toaster"}}': "here is cpu a toaster and not a sleeper",
    }
    started = [place.begin("two", AUTOPIPE_TEST_FACTS=facts) for facts in refused]
    for worker, says in zip(started, refused.values(), strict=True):
        assert says in worker.communicate()[0]
        assert worker.returncode == 5
    with place.farm("two") as (farm, _):
        for says in refused.values():
            assert any(says in text for text in farm.refused)


def test_doctor_and_plan_show_who_is_there(place, two, tmp_path):
    end, told = time.monotonic() + 60, "2 workers, "
    while True:  # those of other tests may not be missed yet
        found = {each.what: each for each in api.diagnose_farm(place.address, place.folder)}
        if time.monotonic() > end or ("two" in found and told in found["two"].detail):
            break
    assert [found[name].state for name in ("certificate", "scheduler", "two")] == ["ok"] * 3
    assert "2 workers, 0 trials in their hands" in found["two"].detail
    assert "target: {mcpu: znver5, num_cores: 2}" in found["two"].detail
    file = tmp_path / "p.yaml"
    file.write_text(
        "version: 1\nname: p\nmodel: {path: m.onnx}\ntarget: {mcpu: znver5, num_cores: 2}\n"
        f"tuning: {{measure: {{runner: farm, label: two, scheduler: '{place.address}',"
        f" certificates: {place.folder}}}}}\n"
    )
    assert api.describe_workers(file) == "2 workers of label two, 0 trials in their hands"
    assert "does not answer" in str(
        api.describe_workers(file, ["tuning.measure.scheduler=tls://[::1]:9"])
    )


@pytest.mark.fault("O6")
def test_nobody_of_a_label_is_said_with_who_is_there(place, two):
    with place.farm("zen9", workers=0, wait_timeout=2.0) as (farm, _):
        number = farm.submit(order(), 5.0)
        with pytest.raises(StageError, match=r"no worker of label zen9 .*two.* for 2 s"):
            done(farm, [number])


@pytest.mark.fault("O7")
def test_no_scheduler_ends_within_the_timeout(place, proxy):
    proxy.dropping = True
    for address in (proxy.address,):
        start = time.monotonic()
        with (
            pytest.raises(SetupError, match="does not answer within 1 s"),
            place.farm("two", address=address, connect_timeout=1.0),
        ):
            pytest.fail("there is none")
        assert time.monotonic() - start < 25


def test_a_scheduler_whose_port_is_taken_says_so(place):
    second = start("scheduler", "--listen", place.address, "--certificates", str(place.folder))
    assert f"error: {place.address} cannot be listened at: " in second.communicate(timeout=60)[0]
    assert second.returncode == 5


@pytest.mark.fault("O8")
def test_a_stranger_without_the_certificate_is_not_let_in(place, tmp_path):
    from autopipe.farm import certificates

    certificates.make_certificates(tmp_path / "own")
    ours, place.folder = place.folder, tmp_path / "own"
    try:
        with pytest.raises(SetupError, match="not of one farm"), place.farm("two"):
            pytest.fail("let in")
        worker = place.begin("two")
        assert "not of one farm; copy the folder" in worker.communicate(timeout=60)[0]
        assert worker.returncode == 5
    finally:
        place.folder = ours


@pytest.mark.fault("O9")
def test_a_scheduler_that_was_killed_and_comes_again_goes_on(place, two):
    with place.farm("two", workers=2, wait_timeout=40.0) as (farm, _):
        numbers = [farm.submit(order(build=0.1, run=0.05), 5.0) for _ in range(24)]
        first = farm.answered(numbers)
        place.scheduler.kill()
        place.scheduler.wait()
        place.schedule()
        found = first | done(farm, set(numbers) - first.keys())
        assert times(found) == [1e-3] * 24


@pytest.mark.fault("O10")
def test_a_frozen_scheduler_ends_the_run_with_what_to_do(place, two, monkeypatch):
    monkeypatch.setattr(farms, "SILENCE", 2.0)
    with place.farm("two", wait_timeout=2.0, connect_timeout=1.0) as (farm, _):
        place.scheduler.send_signal(signal.SIGSTOP)
        number = farm.submit(order(), 5.0)
        with pytest.raises(StageError, match="what was measured is kept: run it again"):
            done(farm, [number])
        place.scheduler.send_signal(signal.SIGCONT)


@pytest.mark.fault("O12")
def test_the_agent_of_a_killed_run_ends(place, two):
    code = f"""
import sys
from autopipe.config.tuning import Reach
from autopipe.farm.farm import Farm
from tests.farm.conftest import order
farm = Farm(Reach(scheduler={place.address!r}, certificates={str(place.folder)!r}), "two")
for _ in range(8):
    farm.submit(order(run=0.2), 5.0)
print(farm._process.pid, flush=True)
farm.pump(1000)
farm.pump(1000)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    agent = psutil.Process(int(run.stdout.readline()))
    run.kill()
    run.wait()
    run.stdout.close()
    assert psutil.wait_procs([agent], timeout=20)[1] == []
    with place.farm("two", workers=2) as (farm, _):
        assert times(done(farm, [farm.submit(order(), 5.0)])) == [1e-3]


@pytest.mark.fault("O4")
@pytest.mark.parametrize("seconds", ["[]", "[NaN]", "[-1]", "[0]", '["x"]', "[1e999]", "null"])
def test_times_that_are_none_make_no_answer(seconds):
    text = WorkAnswer("device", (Measurement((1e-3,)),)).text()
    assert WorkAnswer.read(text, 1).measurements[0].median == 1e-3
    with pytest.raises(ValueError, match=r"."):
        WorkAnswer.read(text.replace("[0.001]", seconds), 1)
    many = text.replace("[0.001]", str([1e-3] * 10_001))
    with pytest.raises(ValueError, match="no times"):
        WorkAnswer.read(many, 1)
