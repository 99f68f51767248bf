"""How much of a message Dask reads: it would take memory for whatever length a message begins with.

Who holds the farm's certificate may still be a worker that somebody has taken over. A message that
is too long ends its connection before memory is taken for it. An answer that can not be read is
answered by the scheduler in the worker's name, as one that is lost: Dask would ask for it again,
and again.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from autopipe.farm.wire import WorkAnswer

MESSAGE: Final = 1 << 28
"""Bytes of a message between scheduler, workers and runs: a thousand orders are less."""

ANSWER: Final = 1 << 24
"""Bytes of the answer to an order."""

DOERS: Final = "autopipe_doers"
"""What the scheduler calls who has done each trial, beside the answers: names of workers."""

UNREAD: Final = "its answer can not be read, or is too long"


class TooMuch(Exception):  # noqa: N818 -- says what it is
    """A message says that it is longer than messages are. No OSError: its worker is there."""


def bound(most: int = MESSAGE) -> None:
    """Have this process read no longer messages, and none that are compressed, from now on."""
    from distributed.comm import tcp
    from distributed.protocol.compression import Compression, compressions

    for name in list(compressions):  # a few bytes could become as many as memory has
        compressions[name] = Compression(None if not name else str(name), _as_it_is, _as_it_is)
    read = getattr(tcp.read_bytes_rw, "unbounded", tcp.read_bytes_rw)

    async def bounded(stream: Any, n: int) -> memoryview:  # noqa: ANN401 -- tornado's
        if n > most:
            raise TooMuch(f"a message of {n} bytes, of {most} at most")
        found: memoryview = await read(stream, n)
        return found

    bounded.unbounded = read  # type: ignore[attr-defined]
    tcp.read_bytes_rw = bounded


def gatherer(scheduler: Any) -> Callable[..., Any]:  # noqa: ANN401 -- distributed has no types
    """Return what a scheduler does where a run asks for answers: Dask's, but for unread ones."""
    from distributed.protocol.serialize import to_serialize
    from distributed.utils_comm import gather_from_workers

    async def gather(
        keys: Collection[str] = (),
        serializers: Any = None,  # noqa: ANN401 -- distributed has no types
    ) -> Mapping[str, Any]:
        who_has = {
            key: places for key, places in scheduler.get_who_has(list(keys)).items() if places
        }
        data, _, unread, _ = await gather_from_workers(
            who_has, rpc=scheduler.rpc, serializers=serializers
        )
        data |= {key: to_serialize(WorkAnswer("", lost=UNREAD).text()) for key in unread}
        gone = [key for key in keys if key not in data]
        if gone:
            return {"status": "error", "keys": gone}
        doers = {key: str(scheduler.workers[who_has[key][0]].name) for key in data
                 if who_has[key][0] in scheduler.workers}  # fmt: skip
        return {"status": "OK", "data": data, DOERS: doers}

    return gather


def _as_it_is(data: Any) -> Any:  # noqa: ANN401 -- bytes of any kind
    return data
