"""Memory of a model with as many weights as ResNet-50, by processes and instances that share them.

python benchmarks/shared_weights.py [--package FILE]

Each row: what opens it, processes, instances of each; resident memory of a process, and what all
processes take together when a page that N share counts 1/N (Pss of /proc/PID/smaps_rollup).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autopipe.api import flow

LAYERS, WIDTH = 8, 1792  # 25.7 million weights; ResNet-50 has 25.5
PIPELINE = """
version: 1
name: dense
model: {path: dense.onnx}
tuning: null
verify: null
benchmark: null
tasks: {allow_empty: true}
target: {num_cores: 1}
"""
CHILD = """
import sys
import numpy as np
package, loader, instances = sys.argv[1:4]
if loader.startswith("autopipe_runtime"):
    import autopipe_runtime
    model = autopipe_runtime.open_package(package, instances=int(instances), threads=1)
else:
    from autopipe import open_package
    model = open_package(package, instances=int(instances), threads=1,
                         copy_weights=loader.endswith("copied"))
rows = {p.name: np.ones([max(n, 1) for n in p.shape], p.dtype) for p in model.signature.inputs}
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(int(instances)) as pool:
    list(pool.map(model, [rows] * 4 * int(instances)))
print("ready", flush=True)
sys.stdin.read()
"""


def make_package(folder: Path) -> Path:
    """Compile a chain of dense layers."""
    random = np.random.default_rng(0)
    names = ["x", *(f"h{at}" for at in range(LAYERS - 1)), "y"]
    weights = [
        numpy_helper.from_array(random.standard_normal((WIDTH, WIDTH), "f") / 42, f"w{at}")
        for at in range(LAYERS)
    ]
    nodes = [
        helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]]) for at in range(LAYERS)
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, WIDTH]) for n in "xy")
    graph = helper.make_graph(nodes, "dense", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "dense.onnx")
    (folder / "dense.yaml").write_text(PIPELINE)
    flow.run(folder / "dense.yaml", store=folder / "store", output=folder / "dist")
    return folder / "dist" / "dense.tar"


def read_memory(process: int) -> tuple[float, float]:
    """Return the resident and the proportional memory of a process in MiB."""
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    found = dict(re.findall(r"^(Rss|Pss): +(\d+) kB", text, re.MULTILINE))
    return int(found["Rss"]) / 1024, int(found["Pss"]) / 1024


def measure(package: Path, loader: str, processes: int, instances: int) -> tuple[float, float]:
    """Return the resident memory of a process, and the proportional memory of all, in MiB."""
    command = [sys.executable, "-c", CHILD, str(package), loader, str(instances)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    try:
        for child in children:
            if child.stdout is None or child.stdout.readline() != "ready\n":
                raise SystemExit(f"{loader}: a process ended")
        memory = [read_memory(child.pid) for child in children]
    finally:
        for child in children:
            child.communicate()
    return max(rss for rss, _ in memory), sum(pss for _, pss in memory)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=Path, help="a package of one's own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        package = options.package or make_package(Path(work))
        loaders = ["autopipe, copied", "autopipe"]
        try:
            import autopipe_runtime  # noqa: F401 - the wheel `autopipe-run`, where it is installed
        except ImportError:
            print("autopipe_runtime is not installed, and left out")
        else:
            loaders.append("autopipe_runtime")
        print(f"{package.name}: {package.stat().st_size / 2**20:.0f} MiB")
        print("| weights | processes | instances | resident each, MiB | all, shared once, MiB |")
        print("|---|---|---|---|---|")
        for loader in loaders:
            for processes, instances in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4)):
                each, together = measure(package, loader, processes, instances)
                print(f"| {loader} | {processes} | {instances} | {each:.0f} | {together:.0f} |")


if __name__ == "__main__":
    main()
