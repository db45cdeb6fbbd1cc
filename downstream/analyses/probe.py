"""What a layer knows of parts of speech: `python -m downstream.analyses.probe --model DIR ...`.

A linear probe (logistic regression) per layer, from the vector of a word in its sentence to its tag
in CoNLL-U files, beside the most frequent tag of each word. Words are those of the files: the
model's tokeniser has no part in it.

Memory: 4 x max-words x layers x dim bytes for the training words (0.15 GB for 50,000 at 3 x 256).
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.distributed.process import share_cores
from bilm.errors import ConfigError, CorpusError, run_command
from downstream.texts.conllu import COLUMNS, TaggedSentence, read_conllu

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bilm.embedding.embedder import Embedder

    Vectors = npt.NDArray[np.float32]  # (layers, words, dim)

logger = logging.getLogger(__name__)

FORMAT = "bilm-probe"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m downstream.analyses.probe",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, required=True, help="a run or a model")
    parser.add_argument("--train", type=Path, required=True, help="CoNLL-U, plain or .gz")
    parser.add_argument("--test", type=Path, required=True, help="likewise")
    parser.add_argument("--output", type=Path, required=True, help="where the page goes")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing page")
    parser.add_argument(
        "--tags", choices=sorted(COLUMNS), default="upos", help="which tags (default: upos)"
    )
    parser.add_argument(
        "--max-words",
        type=int,
        default=50_000,
        help="words of each file at most, in sentences drawn by the seed (default: 50000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the sentences (default: 0)")
    parser.add_argument(
        "--strength",
        type=float,
        default=1.0,
        help="C of the logistic regression, per 10,000 words (default: 1)",
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="bars on stderr (default: if it is a terminal)",
    )
    arguments = parser.parse_args(argv)
    if arguments.seed < 0:
        raise ConfigError(f"--seed is {arguments.seed}; it must not be negative")
    for flag in ("max_words", "strength"):
        if not 0 < getattr(arguments, flag) < math.inf:
            name = "--" + flag.replace("_", "-")
            raise ConfigError(
                f"{name} is {getattr(arguments, flag)}; it must be above 0 and finite"
            )
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    share_cores()
    sys.stdout.write(probe(arguments))
    return 0


def probe(arguments: argparse.Namespace) -> str:
    """Probe every layer, write the page, and return its table."""
    import numpy as np

    from bilm.embedding.embedder import Embedder
    from bilm.pretrained.model_directory import PretrainedBiLm
    from downstream.analyses.shared import layer_name
    from downstream.reports.pages import check_free, markdown_table, percent, write_page
    from downstream.tasks.scores import score

    check_free(arguments.output, FORMAT, arguments.overwrite)
    train, test = (
        read_words(path, arguments.tags, arguments.max_words, arguments.seed)
        for path in (arguments.train, arguments.test)
    )
    tags = tuple(sorted({tag for part in (train, test) for s in part for tag in s.tags}))
    ids = {tag: i for i, tag in enumerate(tags)}
    truth = np.array([ids[tag] for sentence in test for tag in sentence.tags])
    labels = np.array([ids[tag] for sentence in train for tag in sentence.tags])
    if len(set(labels.tolist())) < 2:
        raise CorpusError(
            f"{arguments.train} has one value of {arguments.tags} only, {train[0].tags[0]!r}; a "
            "probe needs two: try another column (--tags)"
        )
    guesses = np.array([ids[tag] for tag in most_frequent_tags(train, test)])
    scores = {"most frequent tag of the word": score(truth, guesses, tags)}
    embedder = Embedder(PretrainedBiLm.open(arguments.model))
    disable = None if arguments.progress is None else not arguments.progress
    vectors, test_vectors = (word_vectors(embedder, part, disable) for part in (train, test))
    for layer in range(embedder.num_layers):
        predicted = _fit(vectors[layer], labels, test_vectors[layer], arguments.strength)
        scores[layer_name(layer)] = score(truth, predicted, tags)
        logger.info("%s: %.2f %%", layer_name(layer), 100 * scores[layer_name(layer)].accuracy)
    rows = [["vectors", "accuracy", "macro F1"]]
    for name, of_name in scores.items():
        rows.append([name, percent(of_name.accuracy), percent(of_name.macro_f1)])
    table = markdown_table(rows)
    page = [
        f"# What each layer knows of {arguments.tags}",
        f"Linear probes on {len(labels):,} words, tested on {len(truth):,}, in per cent.",
        table,
        "![accuracy by layer and tag](probe.png)",
    ]
    tree = {
        "model": str(arguments.model),
        "words": {"train": len(labels), "test": len(truth)},
        "tags": list(tags),
        "strength": arguments.strength,
        "seed": arguments.seed,
        "scores": {name: of_name.as_json() for name, of_name in scores.items()},
    }
    pictures = {"probe.png": plot_probe(scores, tags)}
    write_page(arguments.output, FORMAT, tree, page, pictures, arguments.overwrite)
    return f"{table}\n\npicture: {arguments.output / 'probe.png'}\n"


def read_words(path: Path, column: str, max_words: int, seed: int) -> list[TaggedSentence]:
    """Whole sentences of a file, drawn by the seed, `max_words` words in all at most.

    Treebanks stand in order of their sources, so that the first sentences would be of one kind.
    """
    import numpy as np

    every = list(read_conllu(path, column))
    if not every:
        raise CorpusError(f"{path} has no sentences; a CoNLL-U file is expected")
    drawn: list[int] = []
    count = 0
    for i in np.random.default_rng(seed).permutation(len(every)).tolist():
        count += len(every[i].words)
        if drawn and count > max_words:
            break
        drawn.append(i)
    return [every[i] for i in sorted(drawn)]


def most_frequent_tags(
    train: Sequence[TaggedSentence], test: Sequence[TaggedSentence]
) -> Iterator[str]:
    """For each word of `test`, its most frequent tag in `train`; for a new word, that of all."""
    by_word: dict[str, Counter[str]] = {}
    every: Counter[str] = Counter()
    for sentence in train:
        every.update(sentence.tags)
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            by_word.setdefault(word.lower(), Counter())[tag] += 1
    for sentence in test:
        for word in sentence.words:
            yield by_word.get(word.lower(), every).most_common(1)[0][0]


def word_vectors(
    embedder: Embedder, sentences: Sequence[TaggedSentence], disable: bool | None
) -> Vectors:
    """The layers of all words, sentence after sentence (layers, words, dim)."""
    import numpy as np
    from tqdm import tqdm

    from downstream.features.texts_to_layers import embed_texts, windows_of

    words = [list(sentence.words) for sentence in sentences]
    count = sum(map(len, words))
    result = np.empty((embedder.num_layers, count, embedder.dim), dtype=np.float32)
    done = 0
    with tqdm(total=count, desc="biLM", unit=" words", unit_scale=True, disable=disable) as bar:
        for window in windows_of(words):
            for layers in embed_texts(embedder, window):
                result[:, done : done + len(layers)] = layers.transpose(1, 0, 2)
                done += len(layers)
                bar.update(len(layers))
    return result


def _fit(
    train: Vectors, labels: npt.NDArray[np.int64], test: Vectors, strength: float
) -> npt.NDArray[np.int64]:
    """The tags that a linear probe predicts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    # scikit-learn's loss is a sum over words: C is scaled, so that their number changes nothing.
    # Few steps suffice: the probe's accuracy is settled long before its loss.
    model = LogisticRegression(C=strength * 10_000 / len(labels), max_iter=150, tol=1e-3)
    model.fit(scaler.transform(train), labels)
    predicted: npt.NDArray[np.int64] = model.predict(scaler.transform(test))
    return predicted


def plot_probe(scores: dict[str, Any], tags: Sequence[str]) -> Any:
    """Accuracy by layer on the left; on the right, the share found of each tag."""
    import numpy as np

    from downstream.reports.pages import new_figure

    height = max(3.6, 0.26 * len(tags) + 1.2)
    figure, (left, right) = new_figure(1, 2, width=5.2, height=height)
    (baseline, floor), *layers = scores.items()
    accuracies = [100 * of_layer.accuracy for _, of_layer in layers]
    left.plot(range(len(layers)), accuracies, "o-", markersize=8, label="linear probe")
    for place, accuracy in enumerate(accuracies):
        left.annotate(
            f"{accuracy:.1f}", (place, accuracy), (0, 9), textcoords="offset points", ha="center"
        )
    label = f"{baseline} ({100 * floor.accuracy:.1f})"
    left.axhline(100 * floor.accuracy, color="grey", linestyle="--", linewidth=1, label=label)
    left.margins(x=0.2, y=0.2)
    left.set_xticks(range(len(layers)), [name.replace(" (", "\n(") for name, _ in layers])
    left.set_ylabel("accuracy (%)")
    left.grid(axis="y", alpha=0.3)
    left.legend(fontsize="small", loc="best")
    present = [tag for tag in tags if floor.by_class[tag].support]
    present.sort(key=lambda tag: -floor.by_class[tag].support)
    shown = present[:25]
    recall = np.array([[100 * of.by_class[tag].recall for of in scores.values()] for tag in shown])
    image = right.imshow(recall, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    names = ["by word", *(f"layer {i}" for i in range(len(layers)))]
    right.set_xticks(range(len(names)), names)
    right.set_yticks(
        range(len(shown)), [f"{tag} ({floor.by_class[tag].support:,})" for tag in shown]
    )
    for i, j in np.ndindex(recall.shape):
        colour = "white" if recall[i, j] < 60 else "black"
        right.text(j, i, f"{recall[i, j]:.0f}", ha="center", va="center", color=colour, size=8)
    right.set_title("share found of each tag (%)", fontsize="medium")
    figure.colorbar(image, ax=right)
    return figure


if __name__ == "__main__":
    run_command(main)
