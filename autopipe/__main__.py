"""Run autopipe as a module, and as the command `autopipe`."""

import gc
import os
import resource
import signal
import sys

_NEEDED = 256 << 20
"""Bytes of address space to run a command without TVM (64 MiB) and to report its failure.

With less, CPython may fail in any way: bad syntax, a failed import, or without a message.
"""

_addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
if resource.RLIM_INFINITY != _addresses < _NEEDED:
    sys.stderr.write(
        f"error: out of memory; addresses are limited to {_addresses >> 20} MiB and a command needs"
        f" {_NEEDED >> 20}: raise `ulimit -v`\n"
    )
    sys.exit(5)  # as `SetupError`, whose module is not imported any more

# Imported modules stay. To collect garbage in them takes a tenth of the time of a short command.
gc.set_threshold(100_000)
# Plugins take no part in reading a pipeline file; pydantic would look for them in every package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` takes over: nothing has begun

from contextlib import AbstractContextManager, nullcontext  # noqa: E402 -- after the above
from typing import Final, NoReturn  # noqa: E402

_CHILDREN: Final = {"infer": "autopipe.packaging.infer_program"}
"""Modules of child processes that start before the command is imported, which takes 50 ms."""


def main() -> NoReturn:
    """Run the command line, and end the process without freeing its memory, which takes 10 ms."""
    try:
        with _start_child():
            from autopipe.cli.app import main as run_command

            run_command()
    except SystemExit as end:
        os._exit(int(end.code or 0))


def _start_child() -> AbstractContextManager[None]:
    module = _CHILDREN.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is None:
        return nullcontext()
    from autopipe.processes.ahead import start_ahead

    return start_ahead(module)


if __name__ == "__main__":
    main()
