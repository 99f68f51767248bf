"""What is said over a link arrives whole, in time and within bounds, or not at all."""

import os
import time

import pytest

from autopipe.errors import GateError, ModelError, StageError, StoreError
from autopipe.processes import failure
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import TooLong, encode_message, make_link_pair, wait_for_readable


@pytest.fixture
def ends():
    ours, theirs = make_link_pair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_one_by_one(ends):
    ours, theirs = ends
    theirs.send({"a": "\n"})
    theirs.send([1.5])
    assert [ours.receive(5), ours.receive(5)] == [b'{"a": "\\n"}', b"[1.5]"]


def test_messages_that_are_there_are_taken_and_half_a_one_is_kept(ends):
    ours, theirs = ends
    theirs.write(b'1\n2\n"half')
    assert ours.received() == [b"1", b"2"]
    assert ours.received() == []
    theirs.write(b'"\n')
    assert ours.received() == [b'"half"']


def test_silence_length_and_the_other_end_have_bounds(ends):
    ours, theirs = ends
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive(0.05)
    with pytest.raises(TimeoutError):
        ours.send("x" * (4 << 20), 0.05)
    assert time.monotonic() - start < 30
    theirs.write(b"x" * 70_000)
    with pytest.raises(TooLong):
        ours.receive(5, 1 << 16)
    theirs.close()
    with pytest.raises(EOFError):
        ours.send(None)


def test_who_has_something_to_say_is_known(ends):
    ours, theirs = ends
    assert wait_for_readable([ours, theirs], 0) == set()
    theirs.send(1)
    assert wait_for_readable([ours, theirs], 60) == {ours}


def test_an_answer_comes_back():
    assert failure.decode_answer(failure.encode_answer([1])) == ([1], None)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (GateError("no"), GateError, "no"),
        (type("Own", (ModelError,), {})("odd"), ModelError, "odd"),
        (StageError("it: No space left on device"), StoreError, "No space left on device"),
        (OSError(28, os.strerror(28), "/d"), StoreError, "/d: No space left on device"),
    ],
)
def test_an_error_of_ours_is_raised_as_what_it_was(error, kind, text):
    _, found = failure.decode_answer(failure.encode_failure(failure.describe_refused(error)))
    assert found is not None
    assert found.how is How.REFUSED
    assert type(found.error()) is kind
    assert text in str(found.error())


def test_other_errors_keep_their_class_and_their_traceback():
    _, found = failure.decode_answer(failure.encode_failure(failure.describe_refused(KeyError(1))))
    assert found is not None
    assert (found.how, found.kind, found.text) == (How.RAISED, "KeyError", "1")
    assert found.message == "KeyError: 1"
    assert found.trace.endswith("KeyError: 1\n")


def test_memory_that_was_refused_is_told_apart():
    assert failure.describe_refused(MemoryError()).how is How.HUNGRY
    assert failure.describe_raised(RuntimeError("std::bad_alloc")).how is How.HUNGRY
    assert failure.describe_ended(-6, "terminate: std::bad_alloc").how is How.HUNGRY
    assert failure.describe_ended(-6).how is How.CRASHED
    assert failure.describe_ended(3).how is How.ENDED


@pytest.mark.fault("K3")
@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"nonsense", b"{}", b'{"failed": []}', b'{"failed": {"how": "odd"}}',
     encode_message({"failed": {"how": "raised"}}), b"[" * 100_000],
)  # fmt: skip
def test_an_answer_that_is_none_is_garbled(line):
    assert failure.decode_answer(line) == (None, failure.describe_garbled())


def test_only_errors_of_ours_are_raised():
    for kind in ("SystemExit", "ClassVar", "__doc__", ""):
        assert type(Failure(How.REFUSED, "x", kind).error()) is StageError
    found = Failure(How.REFUSED, "x", "SetupError").error({"ModelError": ModelError}, ModelError)
    assert type(found) is ModelError
