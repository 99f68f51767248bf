"""Measure the peak rates of this machine with NumPy: float32 matmul, and memory copies.

It runs as the main program of a child process, which loads NumPy with as many threads as the build.
"""

import os
import threading
from collections.abc import Callable
from typing import Final

from autopipe.host.stopwatch import time_calls
from autopipe.processes import call

_SIDE: Final = 1024
_COPIED: Final = 1 << 26
"""Bytes that each thread copies at a time."""
_ROUNDS: Final = 5


def measure_peaks(threads: int) -> dict[str, float]:
    """Measure `gflops` and `gbps` with so many threads. Raises StageError."""
    answer = call.run_module(__name__, {"threads": threads}, timeout=60)
    return {name: float(answer[name]) for name in ("gflops", "gbps")}


def _answer_request(request: call.Answer) -> call.Answer:
    threads = int(request["threads"])
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    import numpy as np

    matrix = np.ones((_SIDE, _SIDE), "float32")
    out = np.empty_like(matrix)
    product = _measure_min_time(lambda: np.matmul(matrix, matrix, out=out))
    pairs = [(np.ones(_COPIED, "uint8"), np.empty(_COPIED, "uint8")) for _ in range(threads)]

    def copy() -> None:
        workers = [threading.Thread(target=np.copyto, args=(to, of)) for of, to in pairs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return {
        "gflops": 2 * _SIDE**3 / product / 1e9,
        "gbps": 2 * _COPIED * threads / _measure_min_time(copy) / 1e9,
    }


def _measure_min_time(run: Callable[[], object]) -> float:
    run()
    return min(time_calls(run, _ROUNDS))


if __name__ == "__main__":
    call.serve_request(_answer_request)
