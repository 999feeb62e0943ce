"""A line chart as SVG, written by hand: a few series over a few labelled sizes.

Start with `chart`. Its colours show on a light and on a dark page.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 190, 40, 40
COLOURS = (
    "#3b82f6", "#ef4444", "#22a06b", "#d97706", "#a855f7", "#0e9aa7", "#be185d", "#78716c",
)  # fmt: skip
GREY = "#888888"
LINES = 4  # across, besides the one at nothing


def chart(title: str, sizes: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """One line for each series, from nothing up to the largest value."""
    top = rounded_up(max(max(values) for values in series.values()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        text(LEFT, TOP - 18, title, "start", size=14),
        *scale(top),
        *(text(x_of(n, len(sizes)), HEIGHT - 16, size, "middle") for n, size in enumerate(sizes)),
    ]
    for number, (name, values) in enumerate(series.items()):
        parts += line(name, values, number, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def rounded_up(value: float) -> float:
    """The next value that divides well into the lines across."""
    step = 10.0 ** (len(str(int(value))) - 1)
    return next(step * n for n in (1, 1.2, 1.6, 2, 4, 6, 8, 10) if step * n >= value)


def scale(top: float) -> Iterator[str]:
    for number in range(LINES + 1):
        value = top * number / LINES
        y = y_of(value, top)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.3"/>'
        yield text(LEFT - 8, y + 4, f"{value:,.4g}", "end")


def line(name: str, values: Sequence[float], number: int, top: float) -> Iterator[str]:
    colour = COLOURS[number % len(COLOURS)]
    points = [(x_of(n, len(values)), y_of(value, top)) for n, value in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    y = TOP + 8 + 18 * number
    yield f'<path d="M{WIDTH - RIGHT + 24} {y}h18" stroke="{colour}" stroke-width="3"/>'
    yield text(WIDTH - RIGHT + 48, y + 4, name, "start")


def text(x: float, y: float, content: str, anchor: str, size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{GREY}">'
        f"{escape(content)}</text>"
    )


def x_of(number: int, count: int) -> float:
    return LEFT + 30 + (WIDTH - LEFT - RIGHT - 60) * number / max(1, count - 1)


def y_of(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top
