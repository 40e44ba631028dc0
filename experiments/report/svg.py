"""A figure for a page: small, legible at its own size, in the page's colours, with words for it.

Text stays text. Its size at the figure's own width is at least LEAST pixels; a page that is
narrower scrolls the figure. Ink, grid and background take the page's colours, so that they turn
with it; those of data stay.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from html import escape
from itertools import count

import matplotlib as mpl
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import (
    AutoLocator,
    FuncFormatter,
    LogFormatter,
    LogLocator,
    NullFormatter,
)

from experiments.report.described import alternative

PIXELS = 96 / 72  # a point, of CSS
LEAST = 11.0  # pixels of the smallest text
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# What is drawn with these takes the page's colour.
COLOURS = {
    "#000000": "currentColor",
    "#333333": "currentColor",
    "#e5e5e5": "var(--line)",
    "#ffffff": "var(--page)",
}
# What every figure says of itself, and the page once (style.css).
NOTHING = (
    '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>',
    "<defs></defs>",
    "font-family:'DejaVu Sans';",
    ";font-family:'DejaVu Sans'",
)
_numbers = count()


def svg(figure: Figure) -> str:
    """The figure as an element of a page, named by what it shows."""
    legible(figure)
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    width, height = figure.get_size_inches() * 96
    body = _small(text[text.index("<defs") : text.rindex("</svg>")])
    return (
        f'<svg role="img" aria-label="{escape(alternative(figure))}" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width / PIXELS:.1f} {height / PIXELS:.1f}">'
        f"{_own(body)}</svg>"
    )


def legible(figure: Figure) -> None:
    """No text is smaller than LEAST pixels: small sizes grow, powers are characters."""
    for panel in figure.axes:
        for axis in (panel.xaxis, panel.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):
                _powers(axis)
    least = math.ceil(10 * LEAST / PIXELS) / 10  # points, as they are printed
    for text in figure.findobj(Text):
        if float(text.get_fontsize()) < least:
            text.set_fontsize(least)


def _powers(axis: Axis) -> None:
    """Labels such as 10⁻⁵, whose exponent is no smaller text; on an axis of fewer than two powers
    also 2·10⁻⁵ and 5·10⁻⁵, or 0.02."""
    base = getattr(axis.get_transform(), "base", 10)
    low, high = (math.log(end, base) for end in sorted(axis.get_view_interval()))
    few = base == 10 and math.floor(high) - math.ceil(low) < 1
    if few:
        short = high - low < 0.5
        axis.set_major_locator(AutoLocator() if short else LogLocator(subs=(1, 2, 5)))

    def shown(value: float, _: int) -> str:
        if value <= 0:
            return ""
        whole = math.floor(math.log(value, base) + 1e-9)
        factor = f"{value / base**whole:.3g}"
        power = f"{base:g}{str(whole).translate(POWERS)}"
        if few and -3 < whole < 4:
            return f"{value:.3g}"
        return power if factor == "1" else f"{factor}·{power}"

    axis.set_major_formatter(FuncFormatter(shown))
    axis.set_minor_formatter(NullFormatter())


def _small(text: str) -> str:
    """Without what no page needs, and coordinates to a twentieth of a point."""
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<[^>]+>", lambda tag: _small_tag(tag[0]), text)
    text = _clipped(_flat(re.sub(r">\s+<", "><", text)))
    for nothing in NOTHING:
        text = text.replace(nothing, "")
    return text


def _small_tag(tag: str) -> str:
    """One tag: what stands between tags is read and left as it is."""
    if tag.startswith(("<g id=", "<image")):  # equal images have equal names, which none refers to
        tag = re.sub(r' id="[^"]*"', "", tag)
    if tag.startswith("<image"):
        return re.sub(r"\s*\n\s*", "", tag)
    tag = re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", tag)
    tag = re.sub(r"(\d)\.0(?=\D)", r"\1", tag)
    tag = re.sub(r"\s*\n\s*", " ", tag)
    tag = re.sub(r' d="([^"]+)"', lambda d: f' d="{_walked(d[1])}"', tag)
    tag = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag)
    for colour, of_page in COLOURS.items():
        tag = tag.replace(colour, of_page)
    return re.sub(r'(?<=[ "])([a-z-]+): |; (?=[a-z-]+:)', lambda m: m[0].rstrip(), tag)


def _walked(path: str) -> str:
    """A path's steps, those along an axis by the one number that changes."""
    steps, at = [], ["", ""]
    for step, said in re.findall(r"([MLCQz])([^MLCQz]*)", path):
        to = said.split()
        axis = [x == y for x, y in zip(at, to, strict=False)] if step == "L" else []
        if any(axis):
            steps.append(f"V{to[1]}" if axis[0] else f"H{to[0]}")
        else:
            steps.append(step + " ".join(to))
        at = to[-2:] or ["", ""]  # after z a step says both
    return "".join(steps)


def _clipped(text: str) -> str:
    """Neighbours that the same path clips in one group; those that are moved stay."""
    alone = r"<(?:path|use)(?![^>]* transform=)[^>]*"
    text = re.sub(
        rf"{alone}( clip-path=\"[^\"]*\")[^>]*/>(?:{alone}\1[^>]*/>)+",
        lambda m: f"<g{m[1]}>{m[0].replace(m[1], '')}</g>",
        text,
    )
    inner = r"(?:<[^/g][^>]*/>)+"
    return re.sub(
        rf"<g( clip-path=\"[^\"]*\")>{inner}</g>(?:<g\1>{inner}</g>)+",
        lambda m: m[0].replace(f"</g><g{m[1]}>", ""),
        text,
    )


def _flat(text: str) -> str:
    """Without groups that say nothing of what is in them."""
    bare: list[bool] = []

    def kept(tag: re.Match[str]) -> str:
        if tag[0] == "</g>":
            return "" if bare.pop() else tag[0]
        bare.append(tag[0] == "<g>")
        return "" if bare[-1] else tag[0]

    return re.sub(r"</g>|<g(?: [^>]*)?>", kept, text)


def _own(text: str) -> str:
    """Names of the figure's own: a page has many figures."""
    mine = f"f{next(_numbers)}"
    names = {name: f"{mine}-{i}" for i, name in enumerate(re.findall(r' id="([^"]+)"', text))}
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{names[m[1]]}"', text)
    text = re.sub(r"url\(#([^)]+)\)", lambda m: f"url(#{names[m[1]]})", text)
    return re.sub(r'xlink:href="#([^"]+)"', lambda m: f'href="#{names[m[1]]}"', text)


def shared_styles(page: str) -> tuple[str, str]:
    """The page with classes in the place of styles that stand there thrice; the classes."""
    counted = Counter(re.findall(r' style="([^"]+)"', page))
    names = {style: f"s{i}" for i, (style, times) in enumerate(counted.items()) if times > 2}
    page = re.sub(
        r' style="([^"]+)"',
        lambda m: f' class="{names[m[1]]}"' if m[1] in names else m[0],
        page,
    )
    return page, "".join(f".{name}{{{style}}}" for style, name in names.items())
