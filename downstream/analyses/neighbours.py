"""A word in different sentences: `python -m downstream.analyses.neighbours --word play ...`.

For each layer, the occurrences of the word whose vectors are nearest by cosine to those of a few
queries, with their sentences, and a picture of all occurrences in two dimensions (PCA). Layer 0
knows no context: there all occurrences of one spelling are alike. With labelled text, the picture
is coloured by label, and the share of neighbours of the query's own label is measured.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, CorpusError, run_command

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
from downstream.analyses.occurrences import (
    MEASURED_NEIGHBOURS,
    Occurrence,
    _sentences,
    _tokenizer,
    cosines,
    find_occurrences,
    label_purities,
    occurrence_vectors,
)

logger = logging.getLogger(__name__)

FORMAT = "bilm-neighbours"


_ALIKE = 1 - 1e-5

_MAX_LABELS = 10  # that have a colour of their own


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m downstream.analyses.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_flags(parser)
    arguments = parser.parse_args(argv)
    for flag in ("neighbours", "queries", "max_occurrences"):
        if getattr(arguments, flag) < 1:
            name = "--" + flag.replace("_", "-")
            raise ConfigError(f"{name} is {getattr(arguments, flag)}; it must be at least 1")
    if len(arguments.word.split()) != 1:
        raise ConfigError(f"--word is {arguments.word!r}; one word is expected")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    sys.stdout.write(neighbours(arguments))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, help="a run or a model")
    parser.add_argument(
        "--text",
        type=Path,
        required=True,
        help="a sentence a line, plain or .gz; with --label-column, labelled text as in "
        "downstream.classify",
    )
    parser.add_argument("--word", required=True, help="the word, in either case")
    parser.add_argument("--output", type=Path, required=True, help="where the page goes")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    parser.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="SENTENCE",
        help="a sentence with the word whose neighbours are wanted (may be repeated; default: "
        "occurrences from the text)",
    )
    parser.add_argument(
        "--queries", type=int, default=3, help="how many to take from the text (default: 3)"
    )
    parser.add_argument("--neighbours", type=int, default=5, help="to print for each (default: 5)")
    parser.add_argument(
        "--max-occurrences", type=int, default=1000, help="to read at most (default: 1000)"
    )
    parser.add_argument("--label-column", help="name, or number from 1, of the label")
    parser.add_argument(
        "--text-columns", default="text", help="likewise, separated by commas (default: text)"
    )
    parser.add_argument(
        "--tokenized", action="store_true", help="words stand between spaces already"
    )


def neighbours(arguments: argparse.Namespace) -> str:
    """Look at every layer, write the page, and return what it says."""
    from bilm.embedding.embedder import Embedder
    from bilm.pretrained.model_directory import PretrainedBiLm
    from downstream.reports.pages import check_free, write_page

    check_free(arguments.output, FORMAT, arguments.overwrite)
    embedder = Embedder(PretrainedBiLm.open(arguments.model))
    tokenizer = _tokenizer(embedder, arguments)
    found = find_occurrences(
        _sentences(arguments), arguments.word, tokenizer, arguments.max_occurrences
    )
    queries: list[Occurrence] = []
    for sentence in arguments.query:
        of_one = find_occurrences(iter([(sentence, None)]), arguments.word, tokenizer, 1)
        if not of_one:
            raise ConfigError(f"--query {sentence!r:.80} lacks the word {arguments.word!r}")
        queries += of_one
    if len(found) < 2:
        raise CorpusError(
            f"{arguments.text} has {len(found)} sentence(s) with the word {arguments.word!r}; "
            "two or more are needed"
        )
    if not queries:
        step = max(1, len(found) // arguments.queries)
        queries = found[::step][: arguments.queries]
    vectors, query_vectors = (occurrence_vectors(embedder, part) for part in (found, queries))
    layers = [
        _layer_figures(found, queries, cosines(query_vectors[i], vectors[i]), arguments.neighbours)
        for i in range(embedder.num_layers)
    ]
    purities = label_purities(found, vectors)
    tree = {
        "word": arguments.word,
        "model": str(arguments.model),
        "occurrences": len(found),
        "same_label_share": purities,
        "layers": layers,
    }
    page = _page(arguments.word, found, layers, purities)
    pictures = {"neighbours.png": plot_occurrences(arguments.word, found, vectors, purities)}
    write_page(arguments.output, FORMAT, tree, page, pictures, arguments.overwrite)
    return "\n\n".join(page) + f"\n\npicture: {arguments.output / 'neighbours.png'}\n"


def _layer_figures(
    found: Sequence[Occurrence],
    queries: Sequence[Occurrence],
    similar: Floats,
    count: int,
) -> list[dict[str, Any]]:
    """For each query its nearest occurrences in other sentences."""
    import numpy as np

    result = []
    for query, row in zip(queries, similar, strict=True):
        nearest = [
            {"sentence": found[i].marked(), "cosine": float(row[i]), "label": found[i].label}
            for i in np.argsort(-row, kind="stable")
            if found[i].words != query.words
        ]
        result.append({"query": query.marked(), "label": query.label, "nearest": nearest[:count]})
    return result


def _page(
    word: str,
    found: Sequence[Occurrence],
    layers: Sequence[Sequence[dict[str, Any]]],
    purities: list[float] | None,
) -> list[str]:
    from downstream.analyses.shared import layer_name

    page = [f"# Neighbours of *{word}* in context", f"{len(found):,} occurrences."]
    if purities is not None:
        shares = ", ".join(f"layer {i} {100 * share:.1f} %" for i, share in enumerate(purities))
        counts = Counter(occurrence.label for occurrence in found)
        chance = sum((n / len(found)) ** 2 for n in counts.values())
        page.append(
            f"Of the {MEASURED_NEIGHBOURS} nearest neighbours, these have the same label: {shares} "
            f"(by chance about {100 * chance:.1f} %)."
        )
    for layer, queries in enumerate(layers):
        page.append(f"## {layer_name(layer).capitalize()}")
        for query in queries:
            lines = [f"**{query['query']}**" + _label(query["label"]), ""]
            if all(near["cosine"] > _ALIKE for near in query["nearest"]):
                lines.append("- 1.000  every occurrence of this spelling: they are all alike here")
                page.append("\n".join(lines))
                continue
            for near in query["nearest"]:
                lines.append(f"- {near['cosine']:.3f}  {near['sentence']}{_label(near['label'])}")
            page.append("\n".join(lines))
    page.append("![occurrences in two dimensions](neighbours.png)")
    return page


def _label(label: str | None) -> str:
    return f" ({label})" if label is not None else ""


def plot_occurrences(
    word: str, found: Sequence[Occurrence], vectors: Floats, purities: list[float] | None
) -> Any:
    """The occurrences in the plane of their first two principal components, by layer."""
    import numpy as np

    from downstream.reports.pages import new_figure

    figure, axes = new_figure(1, len(vectors), width=4.0, height=4.2)
    counts = Counter(occurrence.label for occurrence in found)
    coloured = [label for label, _ in counts.most_common(_MAX_LABELS)]
    labels = np.array([coloured.index(o.label) if o.label in coloured else -1 for o in found])
    for layer, (axis, rows) in enumerate(zip(axes, vectors, strict=True)):
        points, told = _plane(rows)
        for i in sorted(set(labels.tolist())):  # the frequent below the rare
            rest = i < 0
            name = "other" if rest else coloured[i]
            axis.scatter(
                *points[labels == i].T,
                s=14,
                alpha=0.65,
                linewidths=0,
                color="lightgrey" if rest else f"C{i}",
                label=name if purities is not None else None,
            )
        title = "layer 0 (no context)" if layer == 0 else f"layer {layer}"
        title += f": {100 * told:.0f} % of the variance" if told > 0 else ": all alike"
        if purities is not None:
            title += f"\nneighbours of the same label: {100 * purities[layer]:.0f} %"
        axis.set_title(title, fontsize="medium")
        axis.set_xticks([])
        axis.set_yticks([])
    if purities is not None:
        handles, names = axes[-1].get_legend_handles_labels()
        by_name = dict(sorted(zip(names, handles, strict=True)))
        axes[-1].legend(by_name.values(), by_name, title="label", fontsize="small", loc="best")
    figure.suptitle(f"“{word}” in {len(found):,} sentences", fontsize="large")
    return figure


def _plane(rows: Floats) -> tuple[Floats, float]:
    """Two dimensions (rows, 2), and the share of the variance that they tell."""
    import numpy as np
    from sklearn.decomposition import PCA

    points = np.zeros((len(rows), 2), dtype=np.float32)
    if np.ptp(rows, axis=0).max() < 1e-5:  # all alike
        return points, 0.0
    pca = PCA(min(2, *rows.shape), random_state=0)
    points[:, : pca.n_components] = pca.fit_transform(rows)
    return points, float(pca.explained_variance_ratio_.sum())


if __name__ == "__main__":
    run_command(main)
