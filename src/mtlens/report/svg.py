"""SVG elements as text: escaping, numbers, and the one style sheet every chart uses.

A chart never carries a colour, only a class; the style sheet maps classes to CSS variables that a page may set and
that follow the reader's light or dark preference on their own.
"""

from __future__ import annotations

import re
from html import escape

# Not allowed in XML 1.0 at all, escaped or not: a name from data may hold them.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Okabe and Ito's palette, darkened for white and lightened for black paper so that lines keep 3:1 contrast.
LIGHT_COLOURS = ("#0b62a8", "#c2410c", "#0f7b5a", "#8e3b8a", "#8a6500", "#3d7d93", "#a02c48", "#5a5f66")
_DARK = ("#6cb6ff", "#ff9d5c", "#4fd1a5", "#dd9be0", "#e6c04f", "#8ed1e6", "#ff8fa8", "#b3bac2")
NUM_COLOURS = len(LIGHT_COLOURS)
DASHES = ("none", "7 4", "2 3", "9 3 2 3")


def _variables(ink: str, muted: str, grid: str, paper: str, better: str, worse: str, colours: tuple[str, ...]) -> str:
    named = {"ink": ink, "muted": muted, "grid": grid, "paper": paper, "better": better, "worse": worse}
    named |= {f"c{i}": colour for i, colour in enumerate(colours)}
    return "".join(f"--mtl-{name}:{value};" for name, value in named.items())


_LIGHT_VARIABLES = _variables("#1b1f24", "#57606a", "#d8dee4", "#ffffff", "#2f81c7", "#d9622b", LIGHT_COLOURS)
_DARK_VARIABLES = _variables("#e6edf3", "#9aa4af", "#363d46", "#0f1318", "#3b8eea", "#e0703a", _DARK)

CHART_CSS = (
    f":root{{{_LIGHT_VARIABLES}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK_VARIABLES}}}}}"
    ".mtl{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:13px;"
    "fill:var(--mtl-ink);max-width:100%;height:auto}"
    ".mtl .title{font-size:15px;font-weight:600}.mtl .muted{fill:var(--mtl-muted)}.mtl .small{font-size:11.5px}"
    ".mtl .grid{stroke:var(--mtl-grid);stroke-width:1}.mtl .axis{stroke:var(--mtl-muted);stroke-width:1}"
    ".mtl .line{fill:none;stroke-width:2}.mtl .bar{stroke-width:1.2}.mtl .whisker{stroke-width:1.4;fill:none}"
    ".mtl .ink{stroke:var(--mtl-ink)}.mtl .band{stroke:none;fill-opacity:.16}.mtl .paper{fill:var(--mtl-paper)}"
    ".mtl .better{fill:var(--mtl-better)}.mtl .worse{fill:var(--mtl-worse)}.mtl .none{fill:var(--mtl-grid)}"
    ".mtl .cell:focus{outline:none}.mtl .cell:focus rect.edge,.mtl .cell:hover rect.edge{stroke:var(--mtl-ink);"
    "stroke-width:2}.mtl .edge{fill:none;stroke:var(--mtl-paper);stroke-width:1}"
    + "".join(f".mtl .f{i}{{fill:var(--mtl-c{i})}}.mtl .s{i}{{stroke:var(--mtl-c{i})}}" for i in range(NUM_COLOURS))
    + "@media print{:root{"
    + _LIGHT_VARIABLES
    + "}}"
)

# Arrow keys walk over a heat map, so that 2,500 cells are one tab stop and not 2,500.
CHART_SCRIPT = (
    "document.addEventListener('keydown',function(e){var c=e.target.closest&&e.target.closest('.mtl .cell');"
    "if(!c)return;var m={ArrowLeft:[0,-1],ArrowRight:[0,1],ArrowUp:[-1,0],ArrowDown:[1,0]}[e.key];if(!m)return;"
    "var r=+c.dataset.row,k=+c.dataset.column,n=null;"
    "for(var i=0;i<200&&!n;i++){r+=m[0];k+=m[1];"
    "n=c.ownerSVGElement.querySelector('.cell[data-row=\"'+r+'\"][data-column=\"'+k+'\"]')}"
    "if(n){c.setAttribute('tabindex','-1');n.setAttribute('tabindex','0');n.focus();e.preventDefault()}});"
)


def text_of(value: object) -> str:
    """Any value as text that is safe inside an element or a quoted attribute; illegal characters become U+FFFD.

    >>> text_of('<b>"R&D"')
    '&lt;b&gt;&quot;R&amp;D&quot;'
    """
    return escape(printable(str(value)), quote=True)


def printable(words: str) -> str:
    """The text with what XML and HTML do not allow at all (control characters, lone surrogates) as U+FFFD."""
    return _ILLEGAL.sub("\ufffd", words)


def number(value: float) -> str:
    """A coordinate with at most two decimals and no trailing zeros: short files, same bytes everywhere.

    >>> number(3.0), number(-0.001), number(12.345)
    ('3', '0', '12.35')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def element(name: str, *children: str, **attributes: object) -> str:
    """One element. ``class_`` and ``data_row`` stand for ``class`` and ``data-row``; None leaves an attribute out.

    Children are markup already; attribute values are escaped here, floats are shortened.

    >>> element("g", element("title", text_of("a<b")), class_="cell", x=1.50)
    '<g class="cell" x="1.5"><title>a&lt;b</title></g>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else text_of(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def label(
    x: float, y: float, words: object, *, anchor: str = "start", class_: str | None = None, **more: object
) -> str:
    """A line of text at a point."""
    return element("text", text_of(words), x=float(x), y=float(y), text_anchor=anchor, class_=class_, **more)


def width_of(words: str, size: float = 13.0) -> float:
    """A safe guess of a text's width in pixels, for layout without a browser (wide scripts count double)."""
    return size * sum(1.0 if ord(letter) > 0x2E7F else 0.57 for letter in words)


def shorten(words: str, width: float, size: float = 13.0) -> str:
    """The text cut with an ellipsis so that it fits a width; the full text belongs in a title element.

    >>> shorten("a rather long name", 60)
    'a rathe…'
    """
    if width_of(words, size) <= width:
        return words
    kept = words
    while kept and width_of(kept + "…", size) > width:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def drawing(
    width: float, height: float, *parts: str, title: str, description: str = "", role: str = "img", **more: object
) -> str:
    """The outer ``svg`` element with an accessible name and description; sizes itself to its column."""
    name = f"{title}. {description}" if description else title
    return element(
        "svg",
        element("title", text_of(title)),
        element("desc", text_of(description or title)),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_="mtl",
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=float(width),
        height=float(height),
        role=role,
        aria_label=name,
        **more,
    )


def standalone(svg: str) -> str:
    """A drawing as a file of its own: with the style sheet and paper behind it (a page carries the sheet once)."""
    end_of_tag = svg.index(">") + 1
    style = element("style", CHART_CSS)
    paper = element("rect", class_="paper", width="100%", height="100%")
    return f"{svg[:end_of_tag]}{style}{paper}{svg[end_of_tag:]}\n"
