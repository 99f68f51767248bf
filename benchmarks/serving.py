"""How an exported folder serves: `python benchmarks/serving.py pipelines/resnet50.yaml`.

Prints the size of the folder, the time from the start of a process to its answer, memory by
instances and processes, and calls a second by callers, beside onnxruntime with the same threads
in one session. A folder with dynamic shapes is called at random sizes besides. A subject is a
pipeline, which is built untuned, or FOLDER=MODEL.onnx.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from dynamic_sizes import draw_sizes
from turns import run_python, take_turns

from autopipe.config.dimension import Dimension, Sizes, list_end_sizes

Call = Callable[[Mapping[str, np.ndarray]], Any]
"""Runs a model once on inputs by name."""
PARTS: Final = ("size", "start", "memory", "calls", "random")
STARTS: Final = 10
"""Processes whose start is timed."""
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Layout:
    """Threads of an instance, instances, and threads that call."""

    threads: int
    instances: int
    callers: int


LAYOUTS: Final = tuple(
    Layout(*numbers)
    for numbers in (
        (1, 1, 1), (1, 1, 4), (1, 2, 1), (1, 2, 2), (1, 2, 4), (1, 4, 4), (2, 1, 1), (2, 1, 4),
        (2, 2, 2), (2, 2, 4),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """An exported folder, and the model that onnxruntime takes."""

    name: str
    folder: Path
    model: Path


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="+")
    parser.add_argument(
        "--folder", type=Path, help="keeps what is built (default: a temporary one)"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of calls")
    parser.add_argument("--rounds", type=int, default=3, help="of calls; the highest rate counts")
    parser.add_argument("--calls", type=int, default=10_000, help="at random sizes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        for text in options.subjects:
            subject = prepare(text, options.folder or Path(work))
            print(f"\n{subject.name}", flush=True)
            for part in options.parts:
                for line in report(part, subject, options):
                    print(f"  {line}", flush=True)


def prepare(text: str, work: Path) -> Subject:
    """Return a subject; a pipeline is built and exported, unless `work` has it already."""
    folder, _, model = text.partition("=")
    if model:
        return Subject(Path(folder).name, Path(folder), Path(model))
    name = Path(text).stem
    store, dist, exported = (work / name / part for part in ("store", "dist", "exported"))
    if not exported.exists():
        untuned = ("--set", "tuning=null", "--set", "benchmark=null", "--no-lock", "--quiet")
        places = ("--store", store, "--output", dist)
        run_python("-m", "autopipe", "run", text, *untuned, *places)
        run_python("-m", "autopipe", "export", next(dist.glob("*.tar")), "--to", exported)
    return Subject(name, exported, next(store.glob("objects/*/reference.onnx")))


def report(part: str, subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of a part."""
    if part == "size":
        yield from describe_size(subject.folder)
    elif part == "start":
        yield from time_starts(subject.folder)
    elif part == "memory":
        yield from measure_memory(subject.folder)
    elif part == "calls":
        yield from compare_calls(subject, options)
    elif dimensions(subject.folder):
        yield alone(call_randomly, subject.folder, options.calls)


def alone(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - as it returns
    """Call a function in a separate process, and return its result."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def describe_size(folder: Path) -> Iterator[str]:
    """Yield the size of the folder, and of what a program needs of it."""
    sizes = {p.relative_to(folder): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
    whole = sum(sizes.values()) / MIB
    weights = sizes[Path("weights.safetensors")] / MIB
    runtime = sum(size for path, size in sizes.items() if path.parts[0] == "lib") / MIB
    own = sum(size for path, size in sizes.items() if path.suffix == ".so") / MIB - runtime
    yield (
        f"size: {whole:.1f} MiB, of it weights {weights:.1f}, runtime {runtime:.1f}, "
        f"model libraries {own:.2f}"
    )


def write_inputs(folder: Path, to: Path) -> list[str]:
    """Write random inputs of the smallest sizes, and return them as options of `run`."""
    words = []
    for place, (name, array) in enumerate(inputs_of(folder).items()):
        np.save(to / f"{place}.npy", array)
        words += ["--input", f"{name}={to}/{place}.npy"]
    return words


def time_starts(folder: Path) -> Iterator[str]:
    """Yield the time of processes that open the folder and answer once, from start to end."""
    with tempfile.TemporaryDirectory() as work:
        words = write_inputs(folder, Path(work))
        for threads in (1, 2):
            command = [str(folder / "bin" / "run"), "--threads", str(threads), *words]
            times = []
            for _ in range(STARTS):
                start = time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                times.append(1e3 * (time.perf_counter() - start))
            yield (
                f"start to first answer, {threads} threads: median {statistics.median(times):.0f} "
                f"ms ({min(times):.0f} to {max(times):.0f})"
            )


def measure_memory(folder: Path) -> Iterator[str]:
    """Yield the memory of 1, 2 and 4 instances in a process, and of as many processes."""
    for count in (1, 2, 4):
        together = sum(pss(folder, processes=1, instances=count))
        apart = sum(pss(folder, processes=count, instances=1))
        yield f"memory: {count} instances {together:.0f} MiB, {count} processes {apart:.0f} MiB"


def pss(folder: Path, *, processes: int, instances: int) -> list[float]:
    """Return the proportional set size of each process while all of them are called."""
    words = ["--bench", "--seconds", "3", "--warmup", "0", "--threads", "1"]
    command = [str(folder / "bin" / "run"), *words, "--callers", str(instances)]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(processes)]
    time.sleep(2.0)
    sizes = []
    for process in running:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        sizes.append(int(text.split("Pss:")[1].split()[0]) / 1024)
    for process in running:
        process.wait()
    return sizes


def compare_calls(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """Yield a row for each layout: calls a second from C, from Python and of onnxruntime.

    Contenders take turns; the highest rate of the rounds counts.
    """
    counts = take_turns(dict(contenders(subject, options.seconds)), options.rounds)
    best = {key: max(rates) for key, rates in counts.items()}
    yield f"{'threads instances callers':>26} {'C':>9} {'Python':>9} {'onnxruntime':>12}"
    for one in LAYOUTS:
        theirs = best[(one.threads, one.callers), "onnxruntime"]
        yield (
            f"{one.threads:>7} {one.instances:>9} {one.callers:>8} {best[one, 'C']:>9.1f} "
            f"{best[one, 'Python']:>9.1f} {theirs:>12.1f}"
        )
    yield f"two processes of one thread: {best['processes', 'C']:.1f}"


def contenders(
    subject: Subject, seconds: float
) -> Iterator[tuple[tuple[object, str], Callable[[], float]]]:
    """Yield the key of each contender, and a function that counts its calls a second."""
    folder = subject.folder
    for key in dict.fromkeys((one.threads, one.callers) for one in LAYOUTS):
        yield (key, "onnxruntime"), partial(alone, count_onnxruntime, subject, *key, seconds)
    for one in LAYOUTS:
        yield (one, "C"), partial(count_c_calls, folder, one, seconds)
        yield (one, "Python"), partial(alone, count_exported, folder, one, seconds)
    yield ("processes", "C"), partial(count_processes, folder, seconds)


def count_processes(folder: Path, seconds: float) -> float:
    """Return the calls a second of two processes at the same time: what the machine allows."""
    with ThreadPoolExecutor(2) as pool:
        counts = [pool.submit(count_c_calls, folder, Layout(1, 1, 1), seconds) for _ in range(2)]
        return sum(count.result() for count in counts)


def count_c_calls(folder: Path, layout: Layout, seconds: float) -> float:
    """Return the calls a second that `run --bench` reports."""
    command = [
        str(folder / "bin" / "run"), "--bench", "--json", "--seconds", str(seconds), "--warmup",
        "0.5", "--threads", str(layout.threads), "--instances", str(layout.instances),
        "--callers", str(layout.callers),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        command += write_inputs(folder, Path(work))
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["calls_per_second"])


def count_exported(folder: Path, layout: Layout, seconds: float) -> float:
    """Return the calls a second of an exported folder from Python."""
    call = load_exported(folder, layout.threads, layout.instances)
    return count_calls(call, inputs_of(folder), layout.callers, seconds)


def count_onnxruntime(subject: Subject, threads: int, callers: int, seconds: float) -> float:
    """Return the calls a second of one session of onnxruntime."""
    call = load_onnxruntime(subject.model, threads)
    return count_calls(call, inputs_of(subject.folder), callers, seconds)


def load_exported(folder: Path, threads: int, instances: int) -> Call:
    """Load a folder by its own loader."""
    sys.path.insert(0, str(folder / "python"))
    import autopipe_runtime

    model: Call = autopipe_runtime.open_package(folder, threads=threads, instances=instances)
    return model


def load_onnxruntime(model: Path, threads: int) -> Call:
    """Load a model into one session, whose calls use so many threads each."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def count_calls(
    call: Call, inputs: Mapping[str, np.ndarray], callers: int, seconds: float
) -> float:
    """Return the calls a second of threads that call one after another."""

    def call_until(end: float) -> int:
        calls = 0
        while time.perf_counter() < end:
            call(inputs)
            calls += 1
        return calls

    with ThreadPoolExecutor(callers) as pool:
        for spent in (0.5, seconds):
            start = time.perf_counter()
            counts = list(pool.map(call_until, [start + spent] * callers))
            rate = sum(counts) / (time.perf_counter() - start)
    return rate


def dimensions(folder: Path) -> dict[str, Dimension]:
    """Return the dynamic dimensions of a folder."""
    lines = (line.split() for line in (folder / "model.txt").read_text().splitlines())
    return {
        words[1]: Dimension(
            min=int(words[2]), max=int(words[3]), multiple=int(words[4]),
            likely=(int(words[3]) // int(words[4]) * int(words[4]),),
        )
        for words in lines
        if words[0] == "dimension"
    }  # fmt: skip


def inputs_of(folder: Path, sizes: Sizes | None = None) -> dict[str, np.ndarray]:
    """Return random inputs for sizes of the dimensions; the smallest, where none are given."""
    sizes = sizes or {name: one.first for name, one in dimensions(folder).items()}
    generator = np.random.default_rng(0)
    arrays = {}
    for line in (folder / "model.txt").read_text().splitlines():
        words = line.split()
        if words[0] == "input":
            shape = [
                sum(sizes[term] if term in sizes else int(term) for term in word.split("+"))
                for word in words[3:]
            ]
            whole = np.dtype(words[2]).kind in "iub"
            drawn = generator.integers(0, 2, shape) if whole else generator.standard_normal(shape)
            arrays[unquote(words[1])] = drawn.astype(words[2])
    return arrays


def call_randomly(folder: Path, calls: int) -> str:
    """Call at random sizes, and return how the memory of this process went."""
    call = load_exported(folder, 1, 1)
    ranges = dimensions(folder)
    draws = draw_sizes(ranges, seed=1)
    resident = []
    for sizes in (list_end_sizes(ranges)[1], *(next(draws) for _ in range(calls))):
        call(inputs_of(folder, sizes))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        resident.append(pages * 4096 / MIB)
    tenth = max(len(resident) // 10, 1)
    parts = [max(resident[at : at + tenth]) for at in range(0, len(resident), tenth)]
    return f"{calls} calls of random sizes, MiB at most in each tenth: " + " ".join(
        f"{part:.0f}" for part in parts
    )


if __name__ == "__main__":
    main()
