"""Describe a package as text or JSON, without loading it."""

from collections import Counter
from collections.abc import Iterator

from autopipe.artifacts.signature import LIBRARY, Port, Signature
from autopipe.compiler.library.ports import describe_port
from autopipe.config.dimension import list_dimension_names
from autopipe.config.problem import format_value
from autopipe.packaging.examine import Examined
from autopipe.packaging.manifest import Needs
from autopipe.packaging.variants import list_builds


def summarize_package(package: Examined) -> dict[str, object]:
    """Describe a package as JSON."""
    needs = package.needs
    signature = needs.signature
    return {
        "name": package.name,
        "sha256": package.sha256,
        "bytes": {name: file.size for name, file in sorted(package.files.items())},
        "inputs": [_describe_port(port, signature) for port in signature.inputs],
        "outputs": [_describe_port(port, signature) for port in signature.outputs],
        "threads": signature.threads,
        "device": signature.device,
        "processor": needs.processor.model_dump(mode="json"),
        "runtime": needs.runtime,
        "libraries": needs.libraries,
        "verification": needs.verification,
        "schedules": _count_engines(needs),
        "variants": [
            {
                "processor": variant.needs.processor.model_dump(mode="json"),
                "threads": variant.needs.signature.threads,
                "verification": variant.needs.verification,
                "schedules": _count_engines(variant.needs),
            }
            for variant in needs.variants
        ],
    }


def _describe_port(port: Port, signature: Signature) -> dict[str, object]:
    names = port.dimensions or ("",) * len(port.shape)
    shape = [name or size for name, size in zip(names, port.shape, strict=True)]
    dimensions = {
        name: signature.dimensions[name].model_dump(mode="json")
        for extent in names
        if extent
        for name in list_dimension_names(extent)
    }
    ranges = {"ranges": port.ranges} if port.ranges else {}
    return {
        "name": port.name,
        "dtype": port.dtype,
        "shape": shape,
        "dimensions": dimensions,
        **ranges,
    }


def _count_engines(build: Needs) -> dict[str, int]:
    """Count the kernels by the engine that scheduled them."""
    counts = Counter(task.engine for task in build.tasks)
    return dict(sorted(counts.items()))


def describe_package(package: Examined) -> Iterator[str]:
    """Yield the description of a package as lines."""
    needs, signature = package.needs, package.needs.signature
    size = sum(file.size for file in package.files.values())
    yield f"package       {package.name}, {size / (1 << 20):.1f} MiB, sha256 {package.sha256[:12]}"
    for port in signature.inputs:
        yield f"input         {format_value(port.name)}: {describe_port(port)}"
    for port in signature.outputs:
        yield f"output        {format_value(port.name)}: {describe_port(port)}"
    for name, dimension in signature.dimensions.items():
        likely = ", ".join(map(str, dimension.likely))
        yield f"dimension     {name}: {dimension.range_text}; specialized for {likely}"
    yield f"runtime       {', '.join(f'{n} {v}' for n, v in sorted(needs.runtime.items()))}"
    for prefix, build in list_builds(needs):
        if needs.variants:
            yield f"build         {prefix}{LIBRARY}"
        yield from _describe_build(build)


def _describe_build(build: Needs) -> Iterator[str]:
    """Yield the description of one build as lines."""
    processor = build.processor
    where = processor.mcpu if processor.gpu is None else f"{processor.mcpu}, GPU {processor.gpu}"
    yield f"processor     {processor.machine}, {where}"
    yield f"features      {', '.join(processor.features) or 'none beyond the architecture'}"
    yield f"threads       {build.signature.threads}"
    counts = ", ".join(f"{count} {engine}" for engine, count in _count_engines(build).items())
    yield f"kernels       {counts or 'none'}"
    yield f"verification  {build.verification or 'none: built with `verify: null`'}"
