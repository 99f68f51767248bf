"""A module that crashes when it is imported."""

import os
import signal

os.kill(os.getpid(), signal.SIGSEGV)
