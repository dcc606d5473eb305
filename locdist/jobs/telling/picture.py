"""Curves with error bars as a small SVG: a picture that needs no library."""

import math
from collections.abc import Callable, Mapping, Sequence
from xml.sax.saxutils import escape

Point = tuple[float, float, float]  # place, value, standard error
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 420, 90, 20, 50
_LINE = 16  # pixels of a line of the legend
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe and Ito


def drawn(curves: Mapping[str, Sequence[Point]], axis: str, value: str) -> str:
    """An SVG of curves over a logarithmic axis, with bars of one standard error.

    Parameters
    ----------
    curves : mapping of str to points
        By the words of the legend.
    axis, value : str
        What stands along the axes.
    """
    points = [point for curve in curves.values() for point in curve] or [(1.0, 0.0, 0.0)]
    places = [_log(place) for place, _, _ in points]
    ends = [
        end for _, middle, error in points for end in (middle - error, middle + error) if math.isfinite(end)
    ]
    across = _scale(min(places), max(places), _LEFT, _WIDTH - 20)
    up = _scale(min(ends, default=0.0), max(ends, default=1.0), _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(_WIDTH / 2, _HEIGHT - 8, axis, "middle"), _text(8, _TOP + 4, value, "start")]
    for place in sorted({point[0] for point in points}):
        parts.append(_text(across(_log(place)), _HEIGHT - _BOTTOM + 18, f"{place:g}", "middle"))
    for end in (min(ends, default=0.0), max(ends, default=1.0)):
        parts.append(_text(_LEFT - 8, up(end) + 4, f"{end:.5g}", "end"))
    for number, (name, curve) in enumerate(curves.items()):
        parts += _curve(curve, across, up, _COLORS[number % len(_COLORS)])
        words = _text(_LEFT, _HEIGHT + _LINE * (number + 1), name, "start")
        parts.append(f'<g fill="{_COLORS[number % len(_COLORS)]}">{words}</g>')
    height = _HEIGHT + _LINE * (len(curves) + 1)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif"'
    )
    return "\n".join([f'{head} font-size="12">', *parts, "</svg>", ""])


def _curve(
    points: Sequence[Point], across: Callable[[float], float], up: Callable[[float], float], color: str
) -> list[str]:
    spots = [(across(_log(place)), up(value)) for place, value, _ in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts = [f'<polyline points="{line}" fill="none" stroke="{color}"/>']
    for (x, y), (_, value, error) in zip(spots, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
        if math.isfinite(error):
            low, high = up(value - error), up(value + error)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{color}"/>')
    return parts


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (end - begin) * ((value - low) / (high - low) if high > low else 0.5)


def _log(place: float) -> float:
    return math.log(place) if place > 0 else -3.0  # a ridge of 0 stands left of all others


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
