"""What Dask may read of pickles: names that a trial needs, and nothing that could be called else.

Dask writes its messages as msgpack, and what has no form there as a pickle, which may name any
function to be called where it is read. So whoever may send a message may run code: a worker in the
process that speaks for a run, a run on the scheduler and on all workers. What travels here is text,
a function of ours, and what Dask puts around it. Its own ways to send code, or files, are closed.
"""

import io
import pickle
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, ClassVar, Final

from autopipe.farm.trial import do

_NAMES: Final = frozenset({
    ("autopipe.farm.trial", "do"), ("builtins", "bytes"), ("dask._task_spec", "Task"),
    ("dask._expr", "LLGExpr"), ("dask._expr", "Expr._reconstruct"),
})  # fmt: skip
"""What a pickle may name: a module, and what it calls it. One of them is called: the last."""

_OPCODES: Final = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MEMOIZE, pickle.MARK, pickle.POP,
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.BININT, pickle.BININT1, pickle.BININT2,
    pickle.LONG1, pickle.BINFLOAT, pickle.SHORT_BINUNICODE, pickle.BINUNICODE,
    pickle.SHORT_BINBYTES, pickle.BINBYTES, pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1,
    pickle.TUPLE2, pickle.TUPLE3, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS,
    pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS, pickle.EMPTY_SET, pickle.ADDITEMS,
    pickle.FROZENSET, pickle.STACK_GLOBAL,
)  # fmt: skip
"""Opcodes that take no more memory than the data that they read. Those that state a length or a
place in a table, such as LONG_BINPUT, take gigabytes for a few bytes."""

_TASK, _GRAPH, _RECONSTRUCT = (
    ("dask._task_spec", "Task"), ("dask._expr", "LLGExpr"), ("dask._expr", "Expr._reconstruct"),
)  # fmt: skip

CLOSED: Final = frozenset({
    "actor_attribute", "actor_execute", "add_keys", "benchmark_disk", "benchmark_hardware",
    "benchmark_memory", "benchmark_network", "broadcast", "dump_cluster_state_to_url",
    "dump_state", "performance_report", "plugin-add", "plugin-remove", "proxy", "rebalance",
    "register_nanny", "register_nanny_plugin", "register_scheduler_plugin",
    "register_worker_plugin", "replicate", "restart", "restart_workers", "run", "run_coroutine",
    "run_function", "scatter", "set_resources", "set_restrictions", "unregister_nanny_plugin",
    "unregister_scheduler_plugin", "unregister_worker_plugin", "update_data", "upload_file",
})  # fmt: skip
"""What nobody may ask of a scheduler or a worker: it runs code, writes files, loads memory, or has
another worker answer than the one that was asked."""


class Unread(TypeError):  # noqa: N818 -- says what it is
    """A pickle names something else. It is a TypeError because Dask expects that of tracebacks."""


class _Reader(pickle._Unpickler):  # noqa: SLF001 -- the only one whose opcodes can be chosen
    """Reads data, and finds no names but those of a trial."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code[0]: pickle._Unpickler.dispatch[code[0]]  # noqa: SLF001 -- as above
        for code in _OPCODES
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 -- whatever it names
        if (module, name) not in _NAMES:
            raise Unread(f"{module}.{name} is no part of a trial, and is not read")
        return super().find_class(module, name)

    def repeat_text(self) -> None:
        """Read a text or a name again. Lists within lists, each there twice, would have no end."""
        super().load_binget()  # type: ignore[misc]
        if not isinstance(self.stack[-1], str | type | FunctionType):
            raise Unread("a value that is there twice")

    dispatch[pickle.BINGET[0]] = repeat_text

    def make_task(self) -> None:
        """Make a task without a state, and nothing else."""
        kind, arguments = self.stack[-2:]
        if (kind.__module__, kind.__qualname__) != _TASK or arguments:
            raise Unread("something else than a task is made")
        super().load_newobj()  # type: ignore[misc]

    dispatch[pickle.NEWOBJ[0]] = make_task

    def fill_task(self) -> None:
        """Set the state of a task that calls `do`. A function has attributes that could be set."""
        kind = type(self.stack[-2])
        if (kind.__module__, kind.__qualname__) != _TASK:
            raise Unread("the state of something else than a task")
        super().load_build()  # type: ignore[misc]
        if self.stack[-1].func is not do:
            raise Unread("a task that is no trial")

    dispatch[pickle.BUILD[0]] = fill_task

    def make_graph(self) -> None:
        """Make a graph of tasks; what else a pickle names is not called."""
        function, arguments = self.stack[-2:]
        names = [(each.__module__, each.__qualname__) for each in (function, arguments[0])]
        if names != [_RECONSTRUCT, _GRAPH] or arguments[-1]:
            raise Unread("a call of something else than a graph")
        super().load_reduce()  # type: ignore[misc]

    dispatch[pickle.REDUCE[0]] = make_graph


def loads(
    data: Any,  # noqa: ANN401 -- any bytes
    /,
    *,
    fix_imports: bool = True,
    encoding: str = "ASCII",
    errors: str = "strict",
    buffers: Iterable[Any] | None = None,
) -> Any:  # noqa: ANN401 -- whatever was written
    """Read a pickle as `pickle.loads` does. Raises Unread for one that is not of a trial."""
    reader = _Reader(
        io.BytesIO(data), fix_imports=fix_imports, encoding=encoding, errors=errors, buffers=buffers
    )
    try:
        return reader.load()
    except Unread:
        raise
    except Exception as error:
        raise Unread(f"no pickle of a trial: {error!r}") from error


def restrict() -> None:
    """Have this process read all pickles so, from now on."""
    from distributed.protocol.serialize import families, register_serialization_family

    if pickle.loads is loads:
        return
    pickle.loads = loads
    for name, (written, read, _) in list(families.items()):
        register_serialization_family(name, written, _guarded(read))


def _guarded(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return what reads a part of a message, and an error in its place where it can not be read.

    If it raised, the connection would end, with all that it carries for others.
    """

    def part(header: Any, frames: Any) -> Any:  # noqa: ANN401 -- distributed has no types
        try:
            return read(header, frames)
        except Exception as error:  # noqa: BLE001 -- whatever somebody has made of it
            return Unread(str(error))

    return part
