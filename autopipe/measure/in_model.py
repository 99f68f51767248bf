"""Time kernels inside the whole model, for several sets of schedules, in one child process.

The state of the caches and the partition of the preceding kernel are real, since the whole model
runs. It is built once. Its virtual machine invokes an *instrument* of TVM before each call of a
kernel, which calls the kernel itself, times it, and tells the machine to skip the call. So it may
call a different schedule of the same function, which was compiled separately.
Weights and inputs are synthetic, as the time of a kernel does not depend on them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import starmap
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, Self

import tvm
from tvm import relax
from tvm_ffi import Shape

from autopipe.artifacts.model_nodes import PACKED
from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.library import build as library
from autopipe.compiler.library import linking
from autopipe.compiler.library.call_thread import CallThread
from autopipe.compiler.library.kernel_threads import shorten_spin, use_threads
from autopipe.measure import build, shipped
from autopipe.measure.call_watch import CallWatch, set_watch
from autopipe.measure.shipped import ShippedModel
from autopipe.measure.tensors import list_ports, make_tensor, make_weight_tensors
from autopipe.processes.contained import Child, Failed
from autopipe.store.passing import open_temporary_folder

Place = Mapping[str, int]
"""The rank of each function's schedule, by name; 0, the first one, by default."""

RUNS: Final = 3
"""Timed runs of a round, of which the median is taken, after a warm-up run."""

_LONG: Final = 0.01
"""Seconds of a run from which one is enough: disturbances are shorter."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The source of a model with several schedules of each function."""

    lowered: tvm.IRModule
    bodies: Mapping[str, Sequence[tvm.IRModule]]
    """Scheduled modules of each function, by its name in `lowered`; their `main` is the body."""
    target: tvm.target.Target
    cores: int


class InModel:
    """A model in a child process, which contains its failures."""

    def __init__(self, source: ModelSource, left: Callable[[], float]) -> None:
        """Set its source; `left` returns the seconds that an answer may take."""
        self._child = Child(lambda: _make_handler(source))
        self._left = left
        self._held = ExitStack()
        self._folder = self._held.enter_context(open_temporary_folder())
        self._models: dict[Ranks, ShippedModel] = {}

    def build(self, place: Place) -> None:
        """Build the instrumented model with one set of schedules. Raises Failed."""
        self._ask({"do": "build", "place": dict(place)})

    def add(self, rank: int, functions: Sequence[str]) -> None:
        """Compile the schedule of a rank for functions that are equal. Raises Failed.

        This includes rank 0, which the model has, too: a separately compiled kernel takes half a
        microsecond more to call.
        """
        self._ask({"do": "add", "rank": rank, "functions": list(functions)})

    def round(self, places: Sequence[Place]) -> Sequence[Mapping[str, float]]:
        """Run the model once with each set of schedules. Raises Failed.

        Returns for each of them the seconds of all calls of each function in one run.
        """
        return list(self._ask({"do": "round", "places": list(map(dict, places))}))

    def unwatched(self) -> float:
        """Return the seconds of a run of the built model without instrument.

        Raises Failed.
        """
        return float(self._ask({"do": "unwatched"}))

    def link(self, place: Place) -> None:
        """Build the library of a package with one set of schedules. Raises Failed."""
        self._linked(place)

    def whole(self, places: Sequence[Place]) -> Sequence[float]:
        """Time a run of the model in packages with these sets of schedules, in seconds.

        A new process loads them in this order. An instrument slows kernels down, and some more
        than others. Raises Failed.
        """
        models = [self._linked(place) for place in places]
        try:
            return shipped.time_models(models, self._left() / 2)
        except Failed:  # a real failure repeats
            return shipped.time_models(models, self._left())

    def _linked(self, place: Place) -> ShippedModel:
        key = _to_ranks(place)
        if key not in self._models:
            folder = self._folder / str(len(self._models))
            folder.mkdir()
            request = {"do": "link", "place": dict(place), "folder": str(folder)}
            self._models[key] = ShippedModel.model_validate(self._ask(request))
        return self._models[key]

    def _ask(self, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        self._child.seconds = max(0.0, self._left())
        return self._child.ask(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()
        self._held.close()


Weights = dict[tuple[int, int, str], tvm.runtime.Tensor]
"""Weights in layouts that the model does not have: by the address of the model's weights, number of
elements and dtype. So each call of a function reads its own weights, as in a model; all schedules
of the function share this memory."""


@dataclass(slots=True)
class _Alone:
    """A separately compiled schedule, as one function calls it."""

    main: Callable[..., None]
    shapes: Sequence[tuple[tuple[int, ...], str]]
    """The shapes and dtypes of its arguments."""
    weights: Weights
    own: dict[tuple[int, int], tvm.runtime.Tensor] = field(default_factory=dict)
    """Weights in a layout that the model does not have, by position, and by address of the model's
    weights."""

    def taken(self, arguments: Sequence[tvm.runtime.Tensor]) -> list[tvm.runtime.Tensor]:
        """Replace weights among the model's arguments by those in this schedule's layout."""
        return [self._choose_argument(at, tensor) for at, tensor in enumerate(arguments)]

    def _choose_argument(self, at: int, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        if _has_port_shape(
            tensor, self.shapes[at]
        ):  # not kept, as the model has other uses for its memory
            return tensor
        key = at, tensor.data_ptr()
        if key not in self.own:
            self.own[key] = self._make_other_weights(tensor.data_ptr(), *self.shapes[at])
        return self.own[key]

    def _make_other_weights(
        self, place: int, shape: tuple[int, ...], dtype: str
    ) -> tvm.runtime.Tensor:
        """Create weights of a shape that the model does not have."""
        key = place, prod(shape), dtype
        if key not in self.weights:
            (self.weights[key],) = make_weight_tensors([(shape, dtype)])
        return self.weights[key]._create_view(shape, dtype, 0)  # noqa: SLF001 -- as TVM's own code does


Ranks = frozenset[tuple[str, int]]
"""The functions that do not run with their first schedule, with the rank of theirs."""


@dataclass(frozen=True, slots=True)
class _Runnable:
    """A built model and its arguments."""

    machine: relax.VirtualMachine
    given: Sequence[Any]

    def run(self) -> float:
        """Run the model and return the seconds."""
        start = perf_counter()
        self.machine["main"](*self.given)
        return perf_counter() - start

    def timed(self) -> float:
        """Return the seconds of a run without instrument."""
        set_watch(self.machine.module, None)
        return median([self.run() for _ in range(_count_runs(self.run()))])


def _make_handler(source: ModelSource) -> Callable[[Mapping[str, Any]], object]:
    """Return the handler of the child, which runs the model in a new thread.

    TVM keeps a pool of workers for each thread, and this forked process lacks the workers of the
    thread that was forked.
    """
    shorten_spin()
    thread, model = CallThread(lambda: use_threads(source.cores)), _WatchedModel(source)
    return lambda request: thread.run(lambda: model.answer(request))


class _WatchedModel(CallWatch):
    """The instrumented model in the child."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._kernels: dict[str, dict[int, _Alone]] = defaultdict(dict)
        self._weights: dict[str, Weights] = defaultdict(dict)
        self._names = {name + PACKED: name for name in source.bodies}
        self._names |= {name: name for name in source.bodies}
        self._place: Place = {}
        self._times: dict[str, float] = {}
        self._built: dict[Ranks, library.Built] = {}
        self._runnable: _Runnable

    def answer(self, request: Mapping[str, Any]) -> object:
        """Answer a request of `InModel`."""
        match request["do"]:
            case "build":
                self._load_model(request["place"])
            case "add":
                self._compile_schedule(request["rank"], request["functions"])
            case "round":
                return [self._time_kernels(place) for place in request["places"]]
            case "unwatched":
                return self._runnable.timed()
            case "link":
                return self._link(request["place"], Path(request["folder"])).document()
        return None

    def _build_model(self, place: Place) -> library.Built:
        """Build the model with these schedules, once."""
        key = _to_ranks(place)
        if key not in self._built:
            source = self._source
            bodies = {name: some[place.get(name, 0)] for name, some in source.bodies.items()}
            for module in bodies.values():
                linking.load_libraries(module)
            self._built[key] = library.build_library(source.lowered, bodies, source.target)
        return self._built[key]

    def _load_model(self, place: Place) -> None:
        """Load the model with these schedules into this process."""
        built_library = self._build_model(place)
        machine = relax.VirtualMachine(built_library.executable, tvm.cpu())
        inputs = self._count_inputs(built_library)
        sizes = [Shape(built_library.steps)] if built_library.steps else []
        weights = make_weight_tensors(built_library.parameters[inputs:])
        arguments = [*starmap(make_tensor, built_library.parameters[:inputs]), *sizes, *weights]
        self._runnable = _Runnable(machine, arguments)

    def _link(self, place: Place, folder: Path) -> ShippedModel:
        """Write the library of the model with these schedules."""
        built_library, main = self._build_model(place), self._source.lowered["main"]
        library.export(built_library, folder / LIBRARY)
        inputs, result_type = self._count_inputs(built_library), main.ret_ty
        outputs = len(result_type.fields) if isinstance(result_type, relax.TupleType) else 1
        return ShippedModel(
            folder=folder, inputs=built_library.parameters[:inputs],
            weights=built_library.parameters[inputs:], outputs=outputs,
            threads=self._source.cores, steps=built_library.steps,
        )  # fmt: skip

    def _count_inputs(self, built_library: library.Built) -> int:
        """Count the input tensors; the attribute counts the sizes, too."""
        return int(self._source.lowered["main"].attrs[COUNT]) - bool(built_library.steps)

    def _compile_schedule(self, rank: int, functions: Sequence[str]) -> None:
        """Compile the schedule that these functions have in common."""
        kernel = build.build_kernel(
            self._source.bodies[functions[0]][rank], self._source.target, asserts=True
        )
        shapes = list_ports(kernel.module["main"])
        main = kernel.library["main"]
        for name in functions:
            self._kernels[name][rank] = _Alone(main, shapes, self._weights[name])

    def _time_kernels(self, place: Place) -> dict[str, float]:
        self._place = place
        model = self._runnable
        set_watch(model.machine.module, self)
        self._times, runs = defaultdict(float), []
        for _ in range(_count_runs(model.run())):
            self._times = defaultdict(float)
            model.run()
            runs.append(self._times)
        return {name: median(run[name] for run in runs) for name in runs[-1]}

    def begin(self, function: Callable[..., Any], symbol: str, arguments: Sequence[Any]) -> bool:
        """Time a kernel with the requested schedule in place of the model's."""
        name = self._names.get(symbol)
        if name is None:
            return False
        kernel = self._kernels[name].get(self._place.get(name, 0))
        kernel_arguments = arguments if kernel is None else kernel.taken(arguments)
        function = function if kernel is None else kernel.main
        start = perf_counter()
        function(*kernel_arguments)
        self._times[name] += perf_counter() - start
        return True


def _count_runs(first: float) -> int:
    """Return the number of timed runs after a first run of some seconds."""
    return 1 if first > _LONG else RUNS


def _to_ranks(place: Place) -> Ranks:
    return frozenset((name, rank) for name, rank in place.items() if rank)


def _has_port_shape(tensor: tvm.runtime.Tensor, port: tuple[tuple[int, ...], str]) -> bool:
    return (tuple(map(int, tensor.shape)), str(tensor.dtype)) == port
