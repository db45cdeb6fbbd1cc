"""An HTML page of documents: the true and the predicted clusters of each sentence, side by side.

A predicted cluster has the number and the color of the true cluster with which it is aligned. All
marks can be read without color, and the page loads no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import NamedTuple, Protocol

from downstream.reports.pages import html_document
from downstream.texts.cluster_scores import aligned_clusters
from downstream.texts.clusters import Clusters, Mention, mentions_of
from downstream.texts.documents import Document

PAGE_FILE = "documents.html"

MAX_SHOWN_DOCUMENTS = 50

_HUES = (210, 30, 120, 300, 60, 255, 0, 165, 330, 90, 185, 275)  # neighbors differ much

_STYLE = """
body { font-family: sans-serif; line-height: 1.8; max-width: 80em; margin: 2em auto; padding: 0 1em;
       color: #111; background: #fff; }
h2 { border-top: 1px solid #999; padding-top: 0.8em; overflow-wrap: anywhere; }
.row { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2em; border-top: 1px solid #ddd; }
.row p { margin: 0.2em 0; overflow-wrap: anywhere; }
.row.head { font-weight: bold; border: 0; position: sticky; top: 0; background: #fff; }
.row b.side { display: none; font-weight: normal; color: #595959; }
h1 { line-height: 1.3; }
.m { border-radius: 3px; padding: 0.05em 0.15em; color: #111; unicode-bidi: isolate;
     -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.m b { font-size: 0.75em; margin-right: 0.3em; }
.s { color: #595959; }
.missed { border: 2px solid #b3311b; }
.wrong { border: 2px dashed #b3311b; }
.missed > b.k, .wrong > b.k { color: #fff; background: #b3311b; padding: 0 0.3em; }
.other > b.k { color: #fff; background: #444; padding: 0 0.3em; }
@media (max-width: 700px) {
  .row { grid-template-columns: 1fr; }
  .row.head { display: none; }
  .row b.side { display: inline; margin-right: 0.5em; }
}
"""

_SIGNS = {"missed": "−", "wrong": "+", "other": "≠"}


class Compared(Protocol):
    """A document with its true and its predicted clusters."""

    @property
    def document(self) -> Document: ...

    @property
    def truth(self) -> Clusters: ...

    @property
    def predicted(self) -> Clusters: ...


class Numbers(NamedTuple):
    """The numbers of the true and of the predicted clusters of a document.

    A cluster of one mention has a number only if it is aligned with a larger one.
    """

    truth: tuple[int | None, ...]
    predicted: tuple[int | None, ...]


def cluster_numbers(truth: Clusters, predicted: Clusters) -> Numbers:
    """Number the clusters of two and more mentions; aligned clusters have the same number."""
    aligned = aligned_clusters(truth, predicted)
    partner = {row: column for column, row in aligned.items()}
    total = 0
    of_truth: list[int | None] = []
    for i, cluster in enumerate(truth):
        is_chain = len(cluster) > 1 or (i in partner and len(predicted[partner[i]]) > 1)
        total += is_chain
        of_truth.append(total if is_chain else None)
    of_predicted: list[int | None] = []
    for j, cluster in enumerate(predicted):
        if j in aligned:
            of_predicted.append(of_truth[aligned[j]])
            continue
        total += len(cluster) > 1
        of_predicted.append(total if len(cluster) > 1 else None)
    return Numbers(tuple(of_truth), tuple(of_predicted))


@dataclass(frozen=True)
class _Mark:
    """How a mention is shown: the number of its cluster, and the kind of its error."""

    number: int | None
    is_single: bool
    error: str  # a key of _SIGNS, or empty

    def opening(self) -> str:
        """Return the HTML before the words of the mention."""
        kinds = ["m"]
        if self.is_single:
            kinds.append("s")
        elif self.number is not None:
            kinds.append(f"c{(self.number - 1) % len(_HUES)}")
        sign = f'<b class="k">{_SIGNS[self.error]}</b>' if self.error else ""
        number = "" if self.number is None else f"<b>{self.number}</b>"
        return f'<span class="{" ".join([*kinds, *filter(None, [self.error])])}">[{sign}{number}'


_Marks = Mapping[Mention, _Mark]


def _marks(one: Compared) -> tuple[_Marks, _Marks]:
    """Return the marks of the true and of the predicted mentions."""
    numbers = cluster_numbers(one.truth, one.predicted)
    aligned = aligned_clusters(one.truth, one.predicted)
    # Aligned clusters have the same identity, whether or not they have a number.
    owner = {m: i for i, cluster in enumerate(one.truth) for m in cluster}
    other_owner = {m: aligned.get(j, -1) for j, c in enumerate(one.predicted) for m in c}

    def error(mention: Mention, absent: str) -> str:
        if mention not in owner or mention not in other_owner:
            return absent
        return "" if owner[mention] == other_owner[mention] else "other"

    return (
        _marked_mentions(one.truth, numbers.truth, {m: error(m, "missed") for m in owner}),
        _marked_mentions(
            one.predicted, numbers.predicted, {m: error(m, "wrong") for m in other_owner}
        ),
    )


def _marked_mentions(
    clusters: Clusters, numbers: Sequence[int | None], kinds: Mapping[Mention, str]
) -> _Marks:
    return {
        mention: _Mark(number, len(cluster) == 1, kinds[mention])
        for cluster, number in zip(clusters, numbers, strict=True)
        for mention in cluster
    }


def cluster_page(documents: Sequence[Compared], source: str) -> str:
    """Return the page of the first documents; `source` is a line in HTML about the test file."""
    shown = documents[:MAX_SHOWN_DOCUMENTS]
    parts = [source, f"<p>{len(shown)} of {len(documents)} test documents.</p>", _legend()]
    for one in shown:
        parts += _document(one)
    return html_document("True and predicted clusters", _STYLE + _colors(), parts)


def _legend() -> str:
    """Return a list in HTML that explains all marks."""
    items = {
        _Mark(1, False, ""): "a mention, in brackets, of cluster 1. A predicted cluster has the "
        "number and the color of the true cluster with which it is aligned: the alignment is one "
        "to one and has as many common mentions as possible. Other predicted clusters have numbers "
        "of their own. Colors are used again after 12 clusters.",
        _Mark(None, True, ""): "gray: a cluster of one mention. It has a number only if it is "
        "aligned with a larger cluster.",
        _Mark(2, False, "missed"): "a missed mention: it is true, but not predicted.",
        _Mark(2, False, "wrong"): "a wrong mention: it is predicted, but not true.",
        _Mark(3, False, "other"): "a mention on both sides whose clusters are not aligned.",
    }
    lines = [f"<li>{mark.opening()}words]</span> {text}</li>" for mark, text in items.items()]
    return "\n".join(["<ul>", *lines, "</ul>"])


def _document(one: Compared) -> Iterator[str]:
    """Yield the heading of a document, the numbers of its errors, and a row per sentence."""
    truth, predicted = _marks(one)
    found = len(mentions_of(one.truth) & mentions_of(one.predicted))
    moved = sum(mark.error == "other" for mark in predicted.values())
    yield f'<h2 dir="auto">{escape(one.document.name)}</h2>'
    yield (
        f"<p>Mentions: {len(truth) - found:,} missed, {len(predicted) - found:,} wrong, "
        f"{moved:,} in another cluster, {found - moved:,} without an error.</p>"
    )
    yield '<div class="row head"><p>true</p><p>predicted</p></div>'
    sentences = one.document.sentences
    rows = zip(_marked(sentences, truth), _marked(sentences, predicted), strict=True)
    for sides in rows:
        cells = (
            f'<p><b class="side">{side}</b><span dir="auto">{words}</span></p>'
            for side, words in zip(("true", "predicted"), sides, strict=True)
        )
        yield f'<div class="row">{"".join(cells)}</div>'


def _colors() -> str:
    """Return a background for each of the classes c0, c1, ..."""
    return "".join(f".c{i} {{ background: hsl({hue} 80% 86%); }}\n" for i, hue in enumerate(_HUES))


def _marked(sentences: Sequence[Sequence[str]], marks: _Marks) -> Iterator[str]:
    """Yield each sentence with its mentions in brackets; longer mentions contain shorter ones."""
    opening: dict[int, list[Mention]] = {}
    closing: dict[int, int] = {}  # by last word: number of mentions that end there
    for mention in marks:
        opening.setdefault(mention.first, []).append(mention)
        closing[mention.last] = closing.get(mention.last, 0) + 1
    places = count()
    for words in sentences:
        parts = []
        for word, place in zip(words, places):  # noqa: B905 - `places` does not end
            tags = [marks[m].opening() for m in sorted(opening.get(place, ()), reverse=True)]
            parts.append("".join(tags) + escape(word) + "]</span>" * closing.get(place, 0))
        yield " ".join(parts)
