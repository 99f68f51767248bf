"""Run autopipe as a module, and as the command `autopipe`."""

import gc
import os
import resource
import signal
import sys

_NEEDED = 256 << 20
"""Bytes of addresses to run a command that imports no TVM (64 MiB) and to tell of its failure.

With fewer, CPython may say anything: bad syntax, a failed import, or nothing at all.
"""

_addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
if resource.RLIM_INFINITY != _addresses < _NEEDED:
    sys.stderr.write(
        f"error: out of memory; addresses are limited to {_addresses >> 20} MiB and a command needs"
        f" {_NEEDED >> 20}: raise `ulimit -v`\n"
    )
    sys.exit(5)  # as `SetupError`, whose module is not imported any more

# What is imported stays. To look for garbage in it takes a tenth of the time of a short command.
gc.set_threshold(100_000)
# Plugins take no part in reading a pipeline file; pydantic would look for them in every package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` takes over: nothing has begun

from autopipe.cli.app import main  # noqa: E402 -- after what its imports depend on

__all__ = ["main"]

if __name__ == "__main__":
    main()
