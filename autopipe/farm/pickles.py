"""What Dask may read of pickles: names that a trial needs, and nothing that could be called else.

Dask writes its messages as msgpack, and what has no form there as a pickle, which may name any
function to be called where it is read. So whoever may send a message may run code: a worker in the
process that speaks for a run, a run on the scheduler and on all workers. What travels here is text,
a function of ours, and what Dask puts around it. Its own ways to send code, or files, are closed.
"""

import io
import pickle
from collections.abc import Callable, Iterable
from typing import Any, Final

_NAMES: Final = frozenset({
    ("autopipe.farm.trial", "do"), ("builtins", "bytes"), ("dask._task_spec", "Task"),
    ("dask._expr", "LLGExpr"), ("dask._expr", "Expr._reconstruct"),
})  # fmt: skip
"""What a pickle may name: a module, and what it calls it."""

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


class _Reader(pickle.Unpickler):
    """Reads data, and finds no names but those of a trial."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 -- whatever it names
        if (module, name) not in _NAMES:
            raise Unread(f"{module}.{name} is no part of a trial, and is not read")
        return super().find_class(module, name)


def loads(
    data: Any,  # noqa: ANN401 -- any bytes
    /,
    *,
    fix_imports: bool = True,
    encoding: str = "ASCII",
    errors: str = "strict",
    buffers: Iterable[Any] | None = None,
) -> Any:  # noqa: ANN401 -- whatever was written
    """Read a pickle as `pickle.loads` does. Raises Unread for one that names anything else."""
    reader = _Reader(
        io.BytesIO(data), fix_imports=fix_imports, encoding=encoding, errors=errors, buffers=buffers
    )
    return reader.load()


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
