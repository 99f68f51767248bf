"""A module that crashes when it is imported, as an extension for another ABI does."""

import os
import signal

if os.environ.get("PYTEST_CURRENT_TEST"):
    os.kill(os.getpid(), signal.SIGSEGV)
