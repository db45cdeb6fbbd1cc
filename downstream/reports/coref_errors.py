"""Errors of coreference as records, and the paragraphs about them in the report.

`errors.jsonl` has one line per test document with an error: the mentions that were missed and the
wrong ones, the true clusters that were divided, and the predicted ones that join several true ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from downstream.reports.cluster_page import PAGE_FILE
from downstream.reports.error_pages import ERRORS_FILE, SHOWN_ERRORS
from downstream.reports.pages import literal, markdown_table
from downstream.texts.clusters import Clusters, Mention, mentions_of
from downstream.texts.documents import Document, DocumentFile

_SHOWN_SENTENCES = 6  # of each kind of error


@dataclass(frozen=True)
class Resolved:
    """A test document with its true and its predicted clusters."""

    document: Document
    truth: Clusters
    predicted: Clusters

    def text(self, mention: Mention) -> str:
        """Return the words of a mention."""
        return " ".join(self.document.words[mention.first : mention.last + 1])

    def sentence_with(self, mention: Mention) -> str:
        """Return the sentence of a mention in Markdown, with the mention in bold brackets."""
        first = 0
        for words in self.document.sentences:
            if mention.first < first + len(words):
                break
            first += len(words)
        start, end = mention.first - first, mention.last + 1 - first
        before, inside, after = (
            literal(" ".join(part)) for part in (words[:start], words[start:end], words[end:])
        )
        return " ".join(filter(None, [before, f"**[{inside}]**", after]))

    def missed(self) -> list[Mention]:
        """Return the mentions that were not found."""
        return sorted(mentions_of(self.truth) - mentions_of(self.predicted))

    def wrong(self) -> list[Mention]:
        """Return the predicted mentions that are not mentions."""
        return sorted(mentions_of(self.predicted) - mentions_of(self.truth))

    def divided(self) -> list[list[Mention]]:
        """Return the true clusters whose found mentions are in several predicted ones."""
        return _in_several(self.truth, self.predicted)

    def merged(self) -> list[list[Mention]]:
        """Return the predicted clusters whose mentions are from several true ones."""
        return _in_several(self.predicted, self.truth)


def _in_several(clusters: Clusters, others: Clusters) -> list[list[Mention]]:
    owner = {mention: i for i, cluster in enumerate(others) for mention in cluster}
    known = ([mention for mention in cluster if mention in owner] for cluster in clusters)
    return [cluster for cluster in known if len({owner[mention] for mention in cluster}) > 1]


def errors(documents: Iterable[Resolved], file: DocumentFile) -> Iterator[dict[str, Any]]:
    """Yield a record of every document with an error."""
    for one in documents:
        record: dict[str, Any] = {
            "place": file.place(one.document),
            "doc": one.document.name,
            "missed": [[*mention, one.text(mention)] for mention in one.missed()],
            "wrong": [[*mention, one.text(mention)] for mention in one.wrong()],
        }
        for name, clusters in (("divided", one.divided()), ("merged", one.merged())):
            record[name] = [[[*m, one.text(m)] for m in cluster] for cluster in clusters]
        if any(record[name] for name in ("missed", "wrong", "divided", "merged")):
            yield record


def error_paragraphs(documents: Sequence[Resolved]) -> Iterator[str]:
    """Yield the paragraphs about errors: their numbers, the most frequent ones, and examples."""
    divided = sum(len(one.divided()) for one in documents)
    merged = sum(len(one.merged()) for one in documents)
    yield (
        f"{divided:,} true clusters are divided into several predicted ones, and {merged:,} "
        f"predicted clusters join several true ones. [{PAGE_FILE}]({PAGE_FILE}) shows the true and "
        "the predicted clusters of each sentence next to each other, with the errors marked, and "
        f"`{ERRORS_FILE}` has all errors."
    )
    for heading, kind in (("missed", Resolved.missed), ("wrong", Resolved.wrong)):
        counts = Counter(one.text(m).lower() for one in documents for m in kind(one))
        yield (
            f"{sum(counts.values()):,} {heading} mentions. The most frequent ones, counted in "
            "lower case:"
        )
        shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_ERRORS]
        rows = [[literal(text), f"{count:,}"] for text, count in shown]
        yield markdown_table([[f"{heading} mention", "times"], *rows]) if rows else "None."
        if rows:
            yield f"Some {heading} mentions in their sentences:"
            yield "\n".join(islice(_examples(documents, kind), _SHOWN_SENTENCES))


def _examples(
    documents: Sequence[Resolved], kind: Callable[[Resolved], list[Mention]]
) -> Iterator[str]:
    """Yield lines of a list with mentions in their sentences; first one of each document."""
    lines = (
        [f"- {one.sentence_with(mention)} ({literal(one.document.name)})" for mention in kind(one)]
        for one in documents
    )
    for row in zip_longest(*lines):
        yield from (line for line in row if line is not None)
