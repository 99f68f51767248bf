"""What a pickle can do to whoever reads it: of a farm's messages, those that Dask pickles."""

import pickle
import tracemalloc
from struct import pack

import pytest
from dask._expr import LLGExpr
from dask._task_spec import Task

from autopipe.farm import pickles
from autopipe.farm.trial import do

DO = b"\x8c\x13autopipe.farm.trial\x8c\x02do\x93"
BYTES = b"\x8c\x08builtins\x8c\x05bytes\x93"
TASK = b"\x8c\x0fdask._task_spec\x8c\x04Task\x93"
GRAPH = b"\x8c\x0adask._expr\x8c\x07LLGExpr\x93"
RECONSTRUCT = b"\x8c\x0adask._expr\x8c\x11Expr._reconstruct\x93"
MANY = b"J" + pack("<i", 1 << 30)

HOSTILE = {
    "attributes of a function": DO + b"}\x8c\x08__code__NsNb.",
    "attributes of a function, in two parts": DO + b"N}\x8c\x08__doc__\x8c\x01xs\x86b.",
    "attributes of a class": TASK + b"}\x8c\x08__call__Nsb.",
    "a call of bytes": BYTES + MANY + b"\x85R.",
    "an object of bytes": BYTES + MANY + b"\x85\x81.",
    "a call of a trial": DO + b"\x8c\x02{}G" + bytes(8) + b"\x86R.",
    "a task that calls bytes": pickle.dumps(Task("a", bytes, 1 << 30)),
    "a task that makes tasks": pickle.dumps(Task("a", Task, "b", do)),
    "bytes in place of a graph": RECONSTRUCT + b"(" + BYTES + MANY + b"\x8c\x01a}tR.",
    "attributes of a graph": RECONSTRUCT + b"(" + GRAPH + b"}\x8c\x01a}\x8c\x05_nameNstR.",
    "a place in a table": b"Nr" + pack("<I", 1 << 27) + b".",
    "text of a length": b"\x8d" + pack("<Q", 1 << 30) + b".",
    "bytes of a length": b"\x8e" + pack("<Q", 1 << 30) + b".",
    "an array of a length": b"\x96" + pack("<Q", 1 << 30) + b".",
    "a number of a length": b"\x8b" + pack("<i", 1 << 30) + b".",
    "bytes that are cut off": b"B" + pack("<I", 1 << 30) + b".",
    "lists that are there twice": b"\x8c\x01a\x85" + b"\x94" + b"h\x00h\x00\x86" * 30 + b".",
    "an old way to name something": b"cbuiltins\nbytes\n.",
    "an old way to call it": b"(I1073741824\nibuiltins\nbytes\n.",
    "something that is not there": b"0.",
    "nothing": b"",
}  # fmt: skip


@pytest.mark.fault("O13")
@pytest.mark.parametrize("what", HOSTILE)
def test_a_few_bytes_call_nothing_and_take_no_memory(what):
    attributes = (do.__code__, do.__doc__, vars(do).copy(), Task.__call__)
    tracemalloc.start()
    try:
        with pytest.raises(pickles.Unread):
            pickles.loads(b"\x80\x05" + HOSTILE[what].removeprefix(b"\x80\x04"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 22
    assert (do.__code__, do.__doc__, vars(do), Task.__call__) == attributes


def test_what_a_trial_sends_is_read():
    task = Task("a", do, '{"order": 1}', 2.5)
    (read,) = (pickles.loads(pickle.dumps(task)),)
    assert (read.func, read.args, read.key) == (do, task.args, "a")
    graph = LLGExpr({"a": task})
    assert pickles.loads(pickle.dumps(graph)).dsk["a"].args == task.args
    value = {"a": [1, -(1 << 40), 2.5, None, True], "b": (b"x", {"c"}, frozenset({"d"}), "e" * 999)}
    assert pickles.loads(pickle.dumps(value)) == value
