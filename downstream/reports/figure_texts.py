"""The texts of plots: they are drawn literally, in a font that has their characters, and cut.

Matplotlib reads `$...$` as a formula and draws a character that its font does not have as a box.
Looking for a font costs a few milliseconds per installed one, and only if a character is missing.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

logger = logging.getLogger(__name__)

LONGEST_NAME = 30

# Fonts whose glyphs are pictures of boxes, or are in colors that matplotlib cannot draw.
_NO_FONTS = ("last resort", "lastresort", "emoji")


def text_width(text: str) -> int:
    """Return the number of columns of a text; East Asian characters are two columns wide."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def short_names(names: Sequence[str], longest: int = LONGEST_NAME) -> list[str]:
    """Return names of at most `longest` columns for a plot; different names stay different.

    A long name ends with an ellipsis. If several begin alike, it is in their middle, and if they
    also end alike, they get a number.
    """
    lines = [" ".join(name.split()) for name in names]
    cut = [line if text_width(line) <= longest else _start(line, longest) for line in lines]
    counts = Counter(cut)
    half = longest // 2
    result = [
        name if counts[name] == 1 or name == line else _start(line, half) + _end(line, half)
        for name, line in zip(cut, lines, strict=True)
    ]
    counts = Counter(result)
    return [
        name if counts[name] == 1 else f"{_start(name, longest - 6)} #{number}"
        for number, name in enumerate(result, 1)
    ]


def prepare_texts(figure: Any) -> str:
    """Draw the texts of a figure literally, in fonts that have their characters.

    Returns the characters that no installed font has.
    """
    texts = list(_texts(figure))
    for text in texts:
        text.set_parse_math(False)
    missing = _missing({char for text in texts for char in text.get_text()}, _usual_font())
    if not missing:
        return ""
    families, missing = _covering(missing)
    for text in texts:
        text.set_fontfamily([*text.get_fontfamily(), *families])
    return "".join(sorted(missing))


def _start(text: str, width: int) -> str:
    """Return the start of a text and an ellipsis, in at most `width` columns."""
    if text_width(text) < width:
        return text if text.endswith("…") else text + "…"
    while text_width(text) >= width:
        text = text[:-1]
    return text.rstrip(" …") + "…"


def _end(text: str, width: int) -> str:
    """Return the end of a text in at most `width` columns."""
    while text_width(text) > width:
        text = text[1:]
    return text.lstrip()


def _texts(figure: Any) -> Iterator[Any]:
    """Yield the texts of a figure, except the numbers of logarithmic axes, which are formulas."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    formulas: set[int] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for labels, formatter in (  # the labels are created here
                (axis.get_majorticklabels(), axis.get_major_formatter()),
                (axis.get_minorticklabels(), axis.get_minor_formatter()),
            ):
                if isinstance(formatter, LogFormatter):
                    formulas.update(map(id, labels))
    for text in figure.findobj(Text):
        if id(text) not in formulas:
            yield text


def _usual_font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


def _missing(characters: set[str], font: Any) -> set[str]:
    """Return the visible characters that a font does not have."""
    return {
        char
        for char in characters
        if not char.isspace()
        and unicodedata.category(char) not in ("Cf", "Cc", "Mn")
        and not font.get_char_index(ord(char))
    }


def _covering(missing: set[str]) -> tuple[list[str], set[str]]:
    """Return families of installed fonts that have the characters, and those that none has."""
    from matplotlib.font_manager import fontManager, get_font

    entries = {
        entry.name: entry
        for entry in fontManager.ttflist
        if not any(word in entry.name.lower() for word in _NO_FONTS) and entry.style == "normal"
    }
    families = []
    for name in sorted(
        entries, key=lambda name: ("sans" not in name.lower(), "mono" in name, name)
    ):
        if not missing:
            break
        try:
            left = _missing(missing, get_font(entries[name].fname))
        except (OSError, RuntimeError):  # a font file that was removed or cannot be read
            continue
        if left != missing:
            families.append(name)
            missing = left
    return families, missing
