"""Compare a word across sentences: `python -m downstream.analyses.neighbours --word play ...`.

For each layer, lists the occurrences of the word whose vectors are nearest to those of a few
queries by cosine similarity, and plots all occurrences in two dimensions (PCA). Layer 0 has no
context: all occurrences of one spelling have the same vector. With labelled text, the plot is
colored by label, and the share of neighbours with the label of the query is measured.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ConfigError, CorpusError, run_command
from bilm.model.devices import AUTO
from bilm.model.precision import Precision
from downstream.analyses.occurrences import (
    NEIGHBOURS_COMPARED,
    Occurrence,
    QueryNeighbours,
    find_occurrences,
    label_purities,
    nearest_neighbours,
    occurrence_vectors,
    principal_plane,
    read_lines,
)
from downstream.reports.pages import Page, check_free, layer_name, new_figure, write_page
from downstream.settings.flags import model_parser, names, set_up_analysis
from downstream.texts.counts import counted

if TYPE_CHECKING:
    from bilm.embedding.embedder import Embedder
    from bilm.text.tokenizers import Tokenizer
    from downstream.analyses.occurrences import Floats

FORMAT = "bilm-neighbours"

_EQUAL_COSINE = 1 - 1e-5

_MAX_COLORED_LABELS = 10


@dataclass(frozen=True)
class NeighbourOptions:
    """The flags of the command."""

    model: Path
    text: Path
    word: str
    output: Path
    overwrite: bool = False
    query: Sequence[str] = ()
    queries: int = 3
    neighbours: int = 5
    max_occurrences: int = 1000
    label_column: str | None = None
    text_columns: str = "text"
    tokenized: bool = False
    device: str = AUTO
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        for flag in ("neighbours", "queries", "max_occurrences"):
            if getattr(self, flag) < 1:
                name = "--" + flag.replace("_", "-")
                raise ConfigError(f"{name} is {getattr(self, flag)}; it must be at least 1")
        if len(self.word.split()) != 1:
            raise ConfigError(f"--word is {self.word!r}; it must be a single word")


@dataclass(frozen=True)
class NeighbourResult:
    """The occurrences of a word, their vectors, and the neighbours of each query by layer."""

    options: NeighbourOptions
    occurrences: Sequence[Occurrence]
    vectors: Floats  # (layers, occurrences, dim)
    layers: Sequence[Sequence[QueryNeighbours]]
    purities: list[float] | None  # the share of neighbours with the same label, by layer


def main(argv: Sequence[str] | None = None) -> int:
    """Find the neighbours and write the page."""
    options = _parse(argv)
    check_free(options.output, FORMAT, options.overwrite)
    set_up_analysis("matplotlib")
    page = neighbours_page(neighbours(options))
    write_page(options.output, FORMAT, page, options.overwrite)
    sys.stdout.write("\n\n".join(page.paragraphs))
    sys.stdout.write(f"\n\nplot: {options.output / 'neighbours.png'}\n")
    return 0


def _parse(argv: Sequence[str] | None) -> NeighbourOptions:
    parser = model_parser(__doc__)
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        help="one sentence per line, plain or .gz; with --label-column, labelled text as in "
        "downstream.classify",
    )
    parser.add_argument("--word", required=True, help="the word; case is ignored")
    parser.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="SENTENCE",
        help="a sentence with the word; its neighbours are listed (may be repeated; default: "
        "occurrences in the text)",
    )
    parser.add_argument(
        "--queries", type=int, default=3, help="number of queries taken from the text (default: 3)"
    )
    parser.add_argument(
        "--neighbours", type=int, default=5, help="neighbours listed per query (default: 5)"
    )
    parser.add_argument(
        "--max-occurrences", type=int, default=1000, help="maximum number to read (default: 1000)"
    )
    parser.add_argument("--label-column", help="name of the label column, or its number from 1")
    parser.add_argument(
        "--text-columns",
        default="text",
        help="names or numbers of the text columns, separated by commas (default: text)",
    )
    parser.add_argument(
        "--tokenized", action="store_true", help="the text is tokenized; split it at spaces"
    )
    return NeighbourOptions(**vars(parser.parse_args(argv)))


def neighbours(options: NeighbourOptions) -> NeighbourResult:
    """Find the occurrences of the word and, in every layer, the neighbours of each query."""
    from bilm.embedding.embedder import Embedder
    from bilm.pretrained.model_directory import PretrainedBiLm

    pretrained = PretrainedBiLm.open(options.model)
    embedder = Embedder(pretrained, device=options.device, precision=options.precision)
    tokenizer = _tokenizer(embedder, options)
    occurrences = find_occurrences(
        _sentences(options), options.word, tokenizer, options.max_occurrences
    )
    queries: list[Occurrence] = []
    for sentence in options.query:
        matches = find_occurrences([(sentence, None)], options.word, tokenizer, 1)
        if not matches:
            raise ConfigError(
                f"--query {sentence!r:.80} does not contain the word {options.word!r}"
            )
        queries += matches
    if len(occurrences) < 2:
        raise CorpusError(
            f"{options.text} has {counted(len(occurrences), 'sentence')} with the word "
            f"{options.word!r}; at least two are needed"
        )
    if not queries:
        step = max(1, len(occurrences) // options.queries)
        queries = occurrences[::step][: options.queries]
    vectors = occurrence_vectors(embedder, occurrences)
    query_vectors = occurrence_vectors(embedder, queries)
    layers = [
        nearest_neighbours(queries, query_layer, occurrences, layer, options.neighbours)
        for query_layer, layer in zip(query_vectors, vectors, strict=True)
    ]
    purities = label_purities(occurrences, vectors)
    return NeighbourResult(options, occurrences, vectors, layers, purities)


def _sentences(options: NeighbourOptions) -> Iterable[tuple[str, str | None]]:
    if options.label_column is None:
        return read_lines(options.text)
    from downstream.texts.labelled import read_labelled

    data = read_labelled(
        options.text, label_column=options.label_column, text_columns=names(options.text_columns)
    )
    return zip(data.texts, data.labels, strict=True)


def _tokenizer(embedder: Embedder, options: NeighbourOptions) -> Tokenizer:
    from bilm.text.tokenizers import WhitespaceTokenizer, require_tokenizer

    if options.tokenized:
        return WhitespaceTokenizer()
    remedy = "tokenize the text, separate words by spaces, and pass --tokenized"
    return require_tokenizer(embedder.pretrained.tokenizer, remedy, options.model)


def neighbours_page(result: NeighbourResult) -> Page:
    """Return the page of a word."""
    word, count = result.options.word, len(result.occurrences)
    paragraphs = [f"# Neighbours of *{word}* in context", f"{count:,} occurrences."]
    if result.purities is not None:
        shares = ", ".join(
            f"layer {i} {100 * share:.1f}%" for i, share in enumerate(result.purities)
        )
        labels = Counter(occurrence.label for occurrence in result.occurrences)
        chance = sum((n / count) ** 2 for n in labels.values())
        paragraphs.append(
            f"Share of the {NEIGHBOURS_COMPARED} nearest neighbours with the same label: {shares} "
            f"(by chance about {100 * chance:.1f}%)."
        )
    for layer, queries in enumerate(result.layers):
        paragraphs.append(f"## {layer_name(layer).capitalize()}")
        paragraphs += [_query_paragraph(query) for query in queries]
    paragraphs.append("![occurrences in two dimensions](neighbours.png)")
    return Page(
        figures={
            "word": word,
            "model": str(result.options.model),
            "occurrences": count,
            "same_label_share": result.purities,
            "layers": [[asdict(query) for query in queries] for queries in result.layers],
        },
        paragraphs=paragraphs,
        pictures={"neighbours.png": plot_occurrences(result)},
    )


def _query_paragraph(query: QueryNeighbours) -> str:
    lines = [f"**{query.query}**{_label(query.label)}", ""]
    if all(near.cosine > _EQUAL_COSINE for near in query.nearest):
        lines.append("- 1.000  every occurrence of this spelling; all vectors are equal here")
    else:
        for near in query.nearest:
            lines.append(f"- {near.cosine:.3f}  {near.sentence}{_label(near.label)}")
    return "\n".join(lines)


def _label(label: str | None) -> str:
    return f" ({label})" if label is not None else ""


def plot_occurrences(result: NeighbourResult) -> Any:
    """Draw the occurrences on their first two principal components, by layer."""
    import numpy as np

    figure, axes = new_figure(1, len(result.vectors), width=4.0, height=4.2)
    counts = Counter(occurrence.label for occurrence in result.occurrences)
    colored = [label for label, _ in counts.most_common(_MAX_COLORED_LABELS)]
    ids = np.array(
        [colored.index(o.label) if o.label in colored else -1 for o in result.occurrences]
    )
    for layer, (axis, vectors) in enumerate(zip(axes, result.vectors, strict=True)):
        points, variance = principal_plane(vectors)
        for i in sorted(set(ids.tolist())):  # rare labels are drawn over frequent ones
            axis.scatter(
                *points[ids == i].T,
                s=14,
                alpha=0.65,
                linewidths=0,
                color="lightgrey" if i < 0 else f"C{i}",
                label=None if result.purities is None else "other" if i < 0 else colored[i],
            )
        title = layer_name(layer)
        title += f": {100 * variance:.0f}% of the variance" if variance > 0 else ": all equal"
        if result.purities is not None:
            title += f"\nneighbours of the same label: {100 * result.purities[layer]:.0f}%"
        axis.set_title(title, fontsize="medium")
        axis.set_xticks([])
        axis.set_yticks([])
    if result.purities is not None:
        handles, labels = axes[-1].get_legend_handles_labels()
        by_label = dict(sorted(zip(labels, handles, strict=True)))
        axes[-1].legend(by_label.values(), by_label, title="label", fontsize="small", loc="best")
    title = f"“{result.options.word}” in {len(result.occurrences):,} sentences"
    figure.suptitle(title, fontsize="large")
    return figure


if __name__ == "__main__":
    run_command(main)
