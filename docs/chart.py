"""The chart of the page on performance, drawn from the table of that page."""

import re
from collections.abc import Iterator
from typing import Final

_ROW: Final = re.compile(r"^\| (\w+) \|.*\| ([\d.]+) \|.*\| ([\d.]+) \|$", re.MULTILINE)
_LEFT: Final = 130
_SCALE: Final = 400
"""Pixels from ratio 0 to ratio 1."""
_LINE: Final = 19
_TOP: Final = 62
_WIDTH: Final = 600

_STYLE: Final = """\
<style>
  .card { fill: #fff; } .grid { stroke: #d5dbe1; } .even { stroke: #1b2127; stroke-width: 1.5; }
  .one { fill: #2f6db5; } .two { fill: none; stroke: #b3541e; stroke-width: 2; }
  text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1b2127; }
  .name { text-anchor: end; } .tick { text-anchor: middle; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #16191d; } .grid { stroke: #3a424a; } .even { stroke: #eef2f6; }
    .one { fill: #6ea8ea; } .two { stroke: #f0a070; } text { fill: #eef2f6; }
  }
</style>
"""
_TITLE: Final = (
    "Latency of each model relative to the fastest reference runtime, with one thread and with two"
)


def draw_chart(page: str) -> str:
    """Return the ratios in the table of the page on performance as SVG."""
    rows = [(name, float(one), float(two)) for name, one, two in _ROW.findall(page)]
    height = _TOP + _LINE * len(rows) + 14
    return "".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" ',
        f'aria-labelledby="title">\n<title id="title">{_TITLE}</title>\n',
        _STYLE,
        f'<rect class="card" width="{_WIDTH}" height="{height}" rx="10"/>\n',
        '<circle class="one" cx="140" cy="20" r="5"/><text x="152" y="24.5">1 thread</text>\n',
        '<circle class="two" cx="240" cy="20" r="5"/><text x="252" y="24.5">2 threads</text>\n',
        '<text x="340" y="24.5">1.0: fastest reference runtime</text>\n',
        *_axis(height - 10),
        *(line for place, row in enumerate(rows) for line in _row(_TOP + _LINE * place + 10, *row)),
        "</svg>\n",
    ])  # fmt: skip


def _axis(bottom: int) -> Iterator[str]:
    for tenth in range(0, 12, 2):
        x = _LEFT + _SCALE * tenth // 10
        kind = "even" if tenth == 10 else "grid"  # noqa: PLR2004 - as fast as the reference
        yield f'<path class="{kind}" d="M{x} {_TOP - 8}V{bottom}"/>'
        yield f'<text class="tick" x="{x}" y="{_TOP - 14}">{tenth / 10}</text>\n'


def _row(y: int, name: str, one: float, two: float) -> Iterator[str]:
    yield f'<text class="name" x="{_LEFT - 12}" y="{y + 4.5}">{name}</text>'
    yield f'<circle class="one" cx="{_LEFT + _SCALE * one:.0f}" cy="{y}" r="5"/>'
    yield f'<circle class="two" cx="{_LEFT + _SCALE * two:.0f}" cy="{y}" r="5"/>\n'
