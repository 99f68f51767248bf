"""Whether a function that was tuned is as fast where another program compiles it.

Each compute is tuned by `auto_schedule`, which reports a time. What it returns is written as TVM
writes modules, and a process that has TVM and not autopipe compiles it and times it by TVM's own
evaluator. The ratio is of that time to the reported one: 1 is a report that holds.

By itself TVM takes half of the cores for threads of the other half. So `TVM_NUM_THREADS`, which
is TVM's, tells the other program how many the function was tuned for.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

_ELSEWHERE: Final = """
import json, sys
import numpy as np
import tvm

file, target, shapes = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
assert "autopipe" not in sys.modules
module = tvm.ir.load_json(open(file, encoding="utf-8").read())
built = tvm.compile(module, tvm.target.Target(target))
random = np.random.default_rng(0)
given = [tvm.runtime.tensor(random.random(shape).astype(dtype)) for shape, dtype in shapes]
found = built.mod.time_evaluator("main", tvm.cpu(), repeat=21, min_repeat_ms=20)(*given)
print(json.dumps(sorted(found.results)[10]))
"""
"""Another program: it knows nothing of autopipe."""


def main() -> None:
    """Tune each compute, time it in both places, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=24, help="of each compute")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed elsewhere")
    parser.add_argument("--only", default="", help="computes whose name holds this")
    options = parser.parse_args()
    print("| compute | reported | elsewhere | ratio |\n|---|---|---|---|")
    ratios = []
    for name, tensors in _computes().items():
        if options.only in name:
            reported, elsewhere = _raced(tensors, options.trials, options.rounds)
            ratios.append(elsewhere / reported)
            times = f"{reported * 1e6:.1f} us | {elsewhere * 1e6:.1f} us"
            print(f"| {name} | {times} | {ratios[-1]:.2f} |", flush=True)
    mean = statistics.geometric_mean(ratios)
    print(f"| **geometric mean, worst** | | | {mean:.2f}, {max(ratios):.2f} |")


def _computes() -> dict[str, list[Any]]:
    from own_computes import OWN
    from tvm import te, topi

    def tensor(*shape: int) -> Any:  # noqa: ANN401 - TVM has no types
        return te.placeholder(shape, name="x")

    a, b, image, kernel = tensor(128, 512), tensor(512, 256), tensor(1, 32, 28, 28), tensor(
        64, 32, 3, 3
    )  # fmt: skip
    wide, rows = tensor(128, 513), tensor(64, 1000)
    return {
        "product 128x256 over 512": [a, b, topi.matmul(a, b)],
        "convolution 3x3, 64 of 32 channels": [
            image, kernel, topi.nn.relu(topi.nn.conv2d_nchw(image, kernel, 1, 1, 1)),
        ],
        "erf 128x513": [wide, topi.erf(wide)],
        "softmax 64x1000": [rows, topi.nn.softmax(rows)],
        "sum of columns 128x513": [wide, topi.sum(wide, axis=0)],
        "max pool 3x3": [
            image, topi.nn.pool2d(image, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"),
        ],
        "transpose 128x513": [wide, topi.transpose(wide)],
        **{name: make(*sizes) for name, (make, sizes, _) in OWN.items()},
    }  # fmt: skip


def _raced(tensors: list[Any], trials: int, rounds: int) -> tuple[float, float]:
    """Return the seconds that were reported, and the minimum of so many processes elsewhere."""
    import tvm

    import autopipe

    found = autopipe.auto_schedule(tensors, trials=trials)
    if found.seconds is None or found.unchecked is not None:
        sys.exit(f"not measured and checked: {found.ended}, {found.unchecked}")
    shapes = json.dumps([([int(n) for n in one.shape], str(one.dtype)) for one in tensors])
    keep = ("mcpu", "mattr")
    target = {"kind": "llvm", "num-cores": found.target.num_cores or 1} | {
        name: value for name in keep if (value := getattr(found.target, name))
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "module.json"
        file.write_text(tvm.ir.save_json(found.module), encoding="utf-8")
        command = [sys.executable, "-c", _ELSEWHERE, str(file), json.dumps(target), shapes]
        threads = {**os.environ, "TVM_NUM_THREADS": str(target["num-cores"])}
        run = partial(
            subprocess.run, command, check=True, capture_output=True, text=True, env=threads
        )
        times = [float(run().stdout) for _ in range(rounds)]
    return found.seconds, min(times)


if __name__ == "__main__":
    main()
