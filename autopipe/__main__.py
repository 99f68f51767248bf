"""Run autopipe as a module, and as the command `autopipe`."""

import gc
import os
import signal
import sys

from autopipe.errors import SetupError
from autopipe.host.memory import read_address_limit
from autopipe.host.refusal import explain_memory_refusal, to_final_error

_ENOUGH = 1 << 30
"""Addresses that are always enough to import the command line."""

# What is imported stays. To look for garbage in it takes a tenth of the time of a short command.
gc.set_threshold(100_000)
# Plugins take no part in reading a pipeline file; pydantic would look for them in every package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` takes over: nothing has begun

try:
    from autopipe.cli.app import main
except Exception as error:  # as where there are too few addresses for it
    found = to_final_error(error)
    if found is None and read_address_limit() < _ENOUGH:
        # CPython 3.11 may take a refusal for bad syntax: "field 'target' is required for AnnAssign"
        found = SetupError(explain_memory_refusal("MemoryError"))
    if found is None:
        raise
    sys.stderr.write(f"error: {found}\n")
    sys.exit(SetupError.exit_code)

__all__ = ["main"]

if __name__ == "__main__":
    main()
