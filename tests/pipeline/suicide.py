"""What crashes like an extension for another ABI does."""

import os
import signal


def examine(_argument: object, _emit: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def examined(_argument: object, _emit: object) -> dict[str, str]:
    return {"llvm": "22", "mcpu": "znver4", "mtriple": "x86_64-linux-gnu", "lacks": ""}
