"""LeNet, forward and backward, against what users run instead: `python benchmarks/training.py`.

A step on 64 images: the loss of each and the gradients of ten weights. Contenders: the package of
`pipelines/tasks/lenet.yaml`, untuned or tuned with `--tuned 'trials: 400, time: 3m'`; the whole as
one function of `auto_schedule`; the same loops with the outer ones in parallel; numpy; and PyTorch
and JAX where they are installed. Each runs in a process of its own, in turn. `build` makes the
packages, `time` goes on from there.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from machine import parallel, target
from turns import ROOT, head_table, take_turns

BATCH: Final = 64
SECONDS: Final = 1.0
"""How long a contender calls in a round."""

FEWEST: Final = 5
"""Calls of a contender in a round, at least."""

Arrays = list[np.ndarray]


def main() -> None:
    """Build, and print the table; or the times of one contender where this is its process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", nargs="?", choices=["build", "time"], help="null for both")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir(), "lenet"), help="of the packages"
    )
    parser.add_argument("--tuned", help="a budget, to tune with besides")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print_seconds(options.contender, options.folder)
        return
    if options.step != "time":
        build(options.folder, options.tuned)
    if options.step != "build":
        table(options.folder, options.rounds)


def build(folder: Path, tuned: str | None) -> None:
    """Make the packages."""
    import autopipe

    for name, tuning in (("untuned", "null"), ("tuned", tuned and f"{{budget: {{{tuned}}}}}")):
        if tuning is None:
            continue
        changes = [f"tuning={tuning}"]
        store = folder / "store"
        autopipe.run(
            ROOT / "pipelines/tasks/lenet.yaml", overrides=changes, store=store, output=folder
        )
        (folder / "lenet.tar").replace(folder / f"{name}.tar")


def table(folder: Path, rounds: int) -> None:
    """Print how long a call of each takes, and how much that is of the parallel loops."""
    contenders = {name: partial(measure, name, folder) for name in CONTENDERS}
    times = {
        name: [seconds for seconds in measured if seconds]
        for name, measured in take_turns(contenders, rounds).items()
    }
    loops = min(times["parallel loops"])
    print(head_table(f"step, {BATCH} images", "minimum", "median", "times the parallel loops"))
    for name, taken in times.items():
        if taken:
            cells = f"{min(taken) * 1e3:.2f} ms | {median(taken) * 1e3:.2f} ms"
            print(f"| {name} | {cells} | {loops / min(taken):.1f} |")


def measure(contender: str, folder: Path) -> float | None:
    """Return the minimum seconds of a call in a process of its own; None if it cannot run."""
    command = [sys.executable, __file__, "--contender", contender, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{contender}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return float(done.stdout.split()[-1])


def print_seconds(contender: str, folder: Path) -> None:
    """Print the minimum seconds of a call, after its results were compared with those of numpy."""
    arrays = drawn()
    call = CONTENDERS[contender](arrays, folder)
    for ours, theirs in zip(call(), numpy_step(arrays), strict=True):
        scale = float(np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * scale, rtol=1e-3)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < FEWEST or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    print(min(times))


def net() -> Any:  # noqa: ANN401 - a class of the model's folder
    """Return LeNet in TE."""
    sys.path.insert(0, str(ROOT / "pipelines" / "models"))
    return import_module("lenet").lenet(BATCH)


def drawn() -> Arrays:
    """Return images, labels and weights."""
    random = np.random.default_rng(0)
    arrays = []
    for one in net().inputs:
        shape = [int(size) for size in one.shape]
        spread = (2 / math.prod(shape[1:])) ** 0.5
        arrays.append(random.normal(0, spread, shape).astype("float32"))
    arrays[0] = random.uniform(0, 1, arrays[0].shape).astype("float32")
    arrays[1] = np.eye(10, dtype="float32")[random.integers(0, 10, BATCH)]
    return arrays


def windows(image: np.ndarray) -> np.ndarray:
    """Return the 5x5 windows of images: batch x rows x columns x channels * 25."""
    found = np.lib.stride_tricks.sliding_window_view(image, (5, 5), axis=(2, 3))
    batch, channels, rows, columns = found.shape[:4]
    return found.transpose(0, 2, 3, 1, 4, 5).reshape(batch * rows * columns, channels * 25)


def numpy_layer(image: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> Arrays:
    """Return the windows, the rectified convolution and its pooling."""
    size, rows = image.shape[0], image.shape[2] - 4
    taken = windows(image)
    found = taken @ weight.reshape(len(weight), -1).T + bias
    found = np.maximum(found, 0).reshape(size, rows, rows, -1).transpose(0, 3, 1, 2)
    cells = found.reshape(size, -1, rows // 2, 2, rows // 2, 2)
    return [taken, found, cells.max((3, 5))]


def numpy_forward(arrays: Arrays) -> Arrays:
    """Return the tensors that each layer stores, the log-probabilities last."""
    images, _, w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = arrays
    first = numpy_layer(np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2))), w1, b1)
    second = numpy_layer(first[2], w2, b2)
    flat = second[2].reshape(len(images), -1)
    third = np.maximum(flat @ w3.T + b3, 0)
    fourth = np.maximum(third @ w4.T + b4, 0)
    scores = fourth @ w5.T + b5
    scores = scores - scores.max(1, keepdims=True)
    scores = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return [*first, *second, flat, third, fourth, scores]


def numpy_back(grad: np.ndarray, layer: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients by a layer's convolution, its weights and its bias.

    Equal maxima share: beside a dead unit, they are all the bias.
    """
    taken, found, pooled = layer
    chosen = found == pooled.repeat(2, 2).repeat(2, 3)
    batch, channels, rows, columns = pooled.shape
    equal = chosen.reshape(batch, channels, rows, 2, columns, 2).sum((3, 5))
    grad = (grad / equal).repeat(2, 2).repeat(2, 3) * (chosen & (found > 0))
    flat = grad.transpose(0, 2, 3, 1).reshape(-1, grad.shape[1])
    return grad, flat.T @ taken, flat.sum(0)


def numpy_step(arrays: Arrays) -> Arrays:
    """Return the losses and the ten gradients."""
    labels, w2, w3, w4, w5 = (arrays[at] for at in (1, 4, 6, 8, 10))
    *layers, flat, third, fourth, scores = numpy_forward(arrays)
    losses = -(scores * labels).sum(1) / BATCH
    by_scores = (np.exp(scores) * labels.sum(1, keepdims=True) - labels) / BATCH
    by_fourth = by_scores @ w5 * (fourth > 0)
    by_third = by_fourth @ w4 * (third > 0)
    by_flat = (by_third @ w3).reshape(layers[5].shape)
    by_second, gw2, gb2 = numpy_back(by_flat, layers[3:])
    padded = np.pad(by_second, ((0, 0), (0, 0), (4, 4), (4, 4)))
    turned = w2[:, :, ::-1, ::-1].transpose(1, 0, 2, 3).reshape(w2.shape[1], -1)
    size = layers[2].shape[2]
    by_first = (windows(padded) @ turned.T).reshape(BATCH, size, size, -1).transpose(0, 3, 1, 2)
    _, gw1, gb1 = numpy_back(by_first, layers[:3])
    return [
        losses, gw1.reshape(arrays[2].shape), gb1, gw2.reshape(w2.shape), gb2,
        by_third.T @ flat, by_third.sum(0), by_fourth.T @ third, by_fourth.sum(0),
        by_scores.T @ fourth, by_scores.sum(0),
    ]  # fmt: skip


def package(name: str, arrays: Arrays, folder: Path) -> Callable[[], Arrays]:
    """Return a package's call."""
    import autopipe

    model = autopipe.open_package(folder / f"{name}.tar")
    inputs = dict(zip(net_names(), arrays, strict=True))
    return lambda: list(model(inputs).values())


def net_names() -> list[str]:
    """Return the names of the inputs of a step."""
    return [one.op.name for one in net().inputs]


def function(make: Callable[[Any], Any], arrays: Arrays, _: Path) -> Callable[[], Arrays]:
    """Return the call of one function for all, as `make` schedules it."""
    import tvm
    from tvm import te

    import autopipe
    from autopipe.measure.timing import use_threads
    from autopipe.schedules.conditions import Conditions

    here = target()
    use_threads(int(str(here["num_cores"])))
    model = net()
    outputs = [model.loss, *autopipe.gradient(model.loss, model.weights)]
    module = make(tvm.IRModule({"main": te.create_prim_func([*model.inputs, *outputs])}))
    built = tvm.compile(module, Conditions.of(here, fast_algorithms=True).target)
    results = [np.zeros([int(n) for n in out.shape], "float32") for out in outputs]
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, *results)]

    def call() -> Arrays:
        built["main"](*tensors)
        return [tensor.numpy() for tensor in tensors[len(arrays) :]]

    return call


def scheduled(module: Any) -> Any:  # noqa: ANN401 - TVM's module
    """Schedule without measuring."""
    import autopipe

    return autopipe.auto_schedule(module).module


def torch_step(arrays: Arrays, _: Path) -> Callable[[], Arrays]:
    """Return a step of PyTorch, as it comes."""
    import torch  # type: ignore[import-not-found]
    from torch.nn import functional  # type: ignore[import-not-found]

    images, labels, *weights = (torch.from_numpy(array) for array in arrays)
    for weight in weights:
        weight.requires_grad_()

    def call() -> Arrays:
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = weights
        found = functional.max_pool2d(functional.conv2d(images, w1, b1, padding=2).relu(), 2)
        found = functional.max_pool2d(functional.conv2d(found, w2, b2).relu(), 2).flatten(1)
        found = functional.linear(functional.linear(found, w3, b3).relu(), w4, b4).relu()
        scores = functional.log_softmax(functional.linear(found, w5, b5), 1)
        losses = -(scores * labels).sum(1) / BATCH
        gradients = torch.autograd.grad(losses.sum(), weights)
        return [losses.detach().numpy(), *(each.numpy() for each in gradients)]

    return call


def jax_step(arrays: Arrays, _: Path) -> Callable[[], Arrays]:
    """Return a step of JAX, compiled by XLA."""
    import jax  # type: ignore[import-not-found]
    from jax import numpy as jnp

    def layer(image: Any, weight: Any, bias: Any, padding: int) -> Any:  # noqa: ANN401 - traced
        around = [(padding, padding)] * 2
        found = jax.lax.conv_general_dilated(image, weight, (1, 1), around) + bias[:, None, None]
        window, steps = (1, 1, 2, 2), (1, 1, 2, 2)
        found = jnp.maximum(found, 0)
        return jax.lax.reduce_window(found, -jnp.inf, jax.lax.max, window, steps, "VALID")

    def losses(weights: Arrays, images: Any, labels: Any) -> Any:  # noqa: ANN401 - traced
        w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = weights
        found = layer(layer(images, w1, b1, 2), w2, b2, 0).reshape(BATCH, -1)
        found = jnp.maximum(found @ w3.T + b3, 0)
        found = jnp.maximum(found @ w4.T + b4, 0)
        each = -(jax.nn.log_softmax(found @ w5.T + b5) * labels).sum(1) / BATCH
        return each.sum(), each

    step = jax.jit(jax.value_and_grad(losses, has_aux=True))
    images, labels, *weights = map(jnp.asarray, arrays)

    def call() -> Arrays:
        (_, each), gradients = step(weights, images, labels)
        return [np.asarray(each), *map(np.asarray, gradients)]

    return call


CONTENDERS: Final[dict[str, Callable[[Arrays, Path], Callable[[], Arrays]]]] = {
    "parallel loops": partial(function, parallel),
    "package, untuned": partial(package, "untuned"),
    "package, tuned": partial(package, "tuned"),
    "one function": partial(function, scheduled),
    "numpy": lambda arrays, _: lambda: numpy_step(arrays),
    "PyTorch": torch_step,
    "JAX": jax_step,
}


if __name__ == "__main__":
    main()
