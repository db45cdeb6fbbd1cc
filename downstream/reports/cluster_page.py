"""An HTML page of documents whose mentions are marked with the number and color of their cluster.

A mention is in brackets, with the number of its cluster after the opening one; clusters of one
mention have no color. The page can be read without color and loads no other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from downstream.reports.pages import html_document
from downstream.texts.clusters import Clusters

PAGE_FILE = "documents.html"

MAX_SHOWN_DOCUMENTS = 50

_NUM_COLORS = 12

_STYLE = """
body { font-family: sans-serif; line-height: 1.7; max-width: 60em; margin: 2em auto; padding: 0 1em;
       color: #111; background: #fff; }
h2 { border-top: 1px solid #999; padding-top: 0.8em; }
sub { font-size: 0.7em; font-weight: bold; }
.m { border-bottom: 2px solid; border-radius: 2px; unicode-bidi: isolate; }
.s { color: #555; border: 0; }
"""


@dataclass(frozen=True)
class ShownDocument:
    """A document with its true and its predicted clusters."""

    name: str
    sentences: Sequence[Sequence[str]]
    truth: Clusters
    predicted: Clusters


def cluster_page(documents: Sequence[ShownDocument]) -> str:
    """Return the page of the first documents."""
    shown = documents[:MAX_SHOWN_DOCUMENTS]
    parts = [
        f"<p>{len(shown)} of {len(documents)} test documents. A mention is in brackets with the "
        "number of its cluster. Numbers of true and predicted clusters do not correspond.</p>",
    ]
    for document in shown:
        parts.append(f'<h2 dir="auto">{escape(document.name)}</h2>')
        for heading, clusters in (("Predicted", document.predicted), ("True", document.truth)):
            parts.append(f"<h3>{heading}</h3>")
            parts.append(f"<p dir='auto'>{'<br>'.join(_marked(document.sentences, clusters))}</p>")
    return html_document("Coreference", _STYLE + _colors(), parts)


def _colors() -> str:
    """Return a background and a line color for each of the classes c0, c1, ..."""
    hues = [round(360 * i / _NUM_COLORS) for i in range(_NUM_COLORS)]
    return "".join(
        f".c{i} {{ background: hsl({hue} 80% 88%); border-color: hsl({hue} 70% 40%); }}\n"
        for i, hue in enumerate(hues)
    )


def _marked(sentences: Sequence[Sequence[str]], clusters: Clusters) -> Iterable[str]:
    """Yield each sentence with its mentions in brackets; longer mentions contain shorter ones."""
    opening: dict[int, list[tuple[int, int]]] = {}  # by first word: last word, cluster
    closing: dict[int, int] = {}  # by last word: number of mentions that end there
    for number, cluster in enumerate(clusters, 1):
        for first, last in cluster:
            opening.setdefault(first, []).append((last, number))
            closing[last] = closing.get(last, 0) + 1
    place = 0
    for words in sentences:
        parts = []
        for word in words:
            tags = []
            for _, number in sorted(opening.get(place, ()), reverse=True):
                is_single = len(clusters[number - 1]) == 1
                kind = "s" if is_single else f"c{(number - 1) % _NUM_COLORS}"
                tags.append(f'<span class="m {kind}">[<sub>{number}</sub>')
            parts.append("".join(tags) + escape(word) + "]</span>" * closing.get(place, 0))
            place += 1
        yield " ".join(parts)
