"""Who has the farm's certificate, and plays foul: each leaves `$AUTOPIPE_TEST_MARK` if it can.

`python -m tests.farm.rogue worker ...` is a worker that answers with objects which run code where
they are read, or, by `$AUTOPIPE_TEST_SAYS`, with `huge` texts or `packed` ones that unpack to such.
`client SCHEDULER FOLDER` asks scheduler and workers to run code, and sends files. `guest SCHEDULER
FOLDER LABEL` is a worker of Dask's that never joined, or joined as another label, and takes trials.
"""

import asyncio
import os
import sys
from contextlib import suppress
from unittest.mock import patch

from autopipe.farm import bounds, certificates, settings, trial

MARK = os.environ["AUTOPIPE_TEST_MARK"]

SAYS = os.environ.get("AUTOPIPE_TEST_SAYS", "")


class Evil(Exception):  # noqa: N818 -- not one
    """Runs code where it is read, but for here: Dask reads what it has written at once."""

    def __reduce__(self):
        return eval, (f"__import__('os').getpid() == {os.getpid()} or open({MARK!r}, 'w')",)


def answer(order, seconds):
    if '"raises": 1' in order.replace("\\", ""):
        raise Evil
    return {"huge": "x" * (1 << 23), "packed": "x" * (1 << 23)}.get(SAYS) or Evil()


def work():
    packing = {"distributed.comm.compression": "zlib" if SAYS == "packed" else False}
    with (
        patch.object(trial, "do", answer),
        patch.object(settings, "restrict", lambda: None),
        patch.object(bounds, "bound", lambda *_: None),
        patch.dict(settings.SETTINGS, packing),
    ):
        __import__("tests.farm.start")


def ask(address, folder):
    from distributed import Client

    with Client(address, security=certificates.security(folder), timeout=10) as client:
        for attempt in (
            lambda: client.submit(os.mkdir, MARK, pure=False).result(5),
            lambda: client.run(os.mkdir, MARK),
            lambda: client.run_on_scheduler(os.mkdir, MARK),
            lambda: client.upload_file(__file__),
            lambda: client.submit(trial.do, Evil(), 1.0).result(5),
        ):
            with suppress(Exception):
                attempt()


async def visit(address, folder, label):
    from distributed import Worker

    try:
        async with Worker(
            address, security=certificates.security(folder), resources={label: 8}, nthreads=8,
            name="guest", dashboard=False, memory_limit=0, death_timeout=10,
        ):  # fmt: skip
            sys.stdout.write("let in\n")
    except Exception as error:  # noqa: BLE001 -- whatever Dask makes of it
        sys.stdout.write(f"refused: {error.__cause__ or error}\n")


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work()
    elif sys.argv[1] == "guest":
        asyncio.run(visit(*sys.argv[2:]))
    else:
        ask(*sys.argv[2:])
