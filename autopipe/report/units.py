"""Format numbers for people."""

_MINUTE = 60
_KILO = 1000
_FRACTIONS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_PREFIXES = " kMGTP"


def format_seconds(value: float) -> str:
    """Format seconds with three digits, or as minutes and hours."""
    minutes, rest = divmod(round(value), _MINUTE)
    if minutes >= _MINUTE:
        return f"{minutes // _MINUTE}h {minutes % _MINUTE:02d}m"
    if minutes:
        return f"{minutes}m {rest:02d}s"
    scale, unit = next((f for f in _FRACTIONS if value >= f[0]), _FRACTIONS[0])
    return f"{_format_three_digits(value / scale)} {unit}"


def format_range(low: float, high: float) -> str:
    """Format the lowest and the highest of times, such as `2 ms to 3 ms`."""
    return f"{format_seconds(low)} to {format_seconds(high)}"


def format_spread(median: float, low: float, high: float) -> str:
    """Format the median of times with their range, such as `2.5 ms (2 ms to 3 ms)`."""
    return f"{format_seconds(median)} ({format_range(low, high)})"


def format_mib(size: int) -> str:
    """Format a number of bytes in MiB, such as `5.0 MiB`."""
    return f"{size / 2**20:.1f} MiB"


def format_count(value: float) -> str:
    """Format a count with three digits and a decimal prefix, such as `231 M`."""
    power = 0
    while value >= _KILO and power < len(_PREFIXES) - 1:
        value, power = value / _KILO, power + 1
    return f"{_format_three_digits(value)} {_PREFIXES[power]}".rstrip()


def format_plural(number: int, name: str) -> str:
    """Format a number with its noun, such as `2 records`."""
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _format_three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= _KILO - 0.5 else f"{value:.3g}"
