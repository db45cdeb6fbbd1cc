"""Measure the speed and the memory of the embedder: `python benchmarks/inference.py`

All implementations run in one process, in turn, on the same sentences:
- ours: `Embedder.stream`, which starts with an empty cache each time, so that every new word of a
  short text is encoded;
- known: the same with all words in the cache, which a long text approaches;
- plain: sentences in the order given, 32 at a time, padded to the longest; the encoder runs on
  every word, and the LSTMs compute every row to the end;
- plain, distinct: the same with the encoder on the distinct words of each batch;
- allennlp (with --allennlp): AllenNLP's ELMo with the same weights, on sentences sorted by length,
  64 at a time, in a process of an environment that has it (see benchmarks/allennlp_elmo.py);
  "allennlp, ids given" is its time without the conversion of words into character ids.

Rounds are repeated until the ratios are steady. Prints one JSON line per figure: words per second,
the medians of the ratios with their range, the greatest difference between the vectors, and the
peak memory of `launch/embed.py` for a text and for a text four times as long; then the figures of
`bulk_embedding.py`. Without --text, the sentences are drawn from Zipf's law, with log-normal
lengths like those of news.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import numpy.typing as npt
import torch
from allennlp_elmo import AllenNlp
from bulk_embedding import measure
from measure import seconds_of
from rounds import Bounds, add_bounds, steady_rounds, summary
from torch import Tensor

from bilm.distributed.process import num_cores, peak_memory_bytes
from bilm.embedding.embedder import DEFAULT_LIMITS, Embedder, Limits
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, char_ids
from bilm.text.tokenizers import MosesTokenizer, WhitespaceTokenizer
from bilm.training.config import load_config

Sentences = Sequence[Sequence[str]]
Vectors = npt.NDArray[np.float32]  # (layers + 1, words, directions * dim)
Contenders = dict[str, Callable[[], Iterator[Vectors]]]
ROOT = Path(__file__).resolve().parents[1]
ALLENNLP = ("allennlp", "allennlp, ids given")


def zipf_sentences(count: int, seed: int = 1) -> list[list[str]]:
    """Return sentences with 40 words on average and about as many distinct words as news."""
    rng = np.random.default_rng(seed)
    lengths = np.maximum(1, rng.lognormal(np.log(37), 0.4, count)).astype(int)
    weights = np.cumsum(1 / np.arange(1, 200_001))
    ids = np.searchsorted(weights, rng.random(int(lengths.sum())) * weights[-1])
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    spelling = rng.integers(26, size=(len(weights), 4))
    words = ["".join(letters[spelling[i]]) + str(i) for i in ids]
    borders = np.cumsum(lengths)
    return [words[end - size : end] for end, size in zip(borders, lengths, strict=True)]


def text_sentences(path: Path, count: int) -> list[list[str]]:
    """Return the lines of a text, or the last column of a .csv, tokenized by moses."""
    tokenizer = MosesTokenizer()
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        is_csv = ".csv" in path.suffixes
        lines: Iterator[str] = (row[-1] for row in csv.reader(file)) if is_csv else iter(file)
        return [tokenizer.tokenize(line) for line in islice(lines, count)]


def plain(model: BiLm, sentences: Sentences, is_distinct: bool) -> Iterator[Vectors]:
    """Yield vectors of sentences in the order given, 32 at a time, without the embedder."""
    assert model.config.characters is not None
    for start in range(0, len(sentences), 32):
        batch = [
            [BEGIN_SENTENCE_WORD, *sentence, END_SENTENCE_WORD]
            for sentence in sentences[start : start + 32]
        ]
        words = [word for sentence in batch for word in sentence]
        if is_distinct:
            words = list(dict.fromkeys(words))
            ids = {word: i for i, word in enumerate(words)}
            indices = [np.array([ids[word] for word in sentence]) for sentence in batch]
        else:
            borders = np.cumsum([len(sentence) for sentence in batch])[:-1]
            indices = np.split(np.arange(len(words)), borders)
        characters = char_ids(words, model.config.characters.max_characters)
        chars = torch.from_numpy(characters).long()
        yield from plain_batch(model, chars, indices)


@torch.inference_mode()
def plain_batch(
    model: BiLm, words: Tensor, sentences: Sequence[npt.NDArray[np.int64]]
) -> list[Vectors]:
    """Return the layers of each sentence, without its boundary tokens.

    `words` is the input of the encoder; a sentence is an array of indices into it, including its
    boundary tokens. The backward direction reads each sentence reversed by its own length.
    """
    lengths = [len(sentence) for sentence in sentences]
    inverse = torch.zeros(model.config.num_directions, len(sentences), max(lengths)).long()
    for row, sentence in enumerate(sentences):
        index = torch.from_numpy(sentence)
        inverse[0, row, : len(index)] = index
        if model.config.bidirectional:
            inverse[1, row, : len(index)] = index.flip(0)
    layers, _ = model.layers(words, inverse, model.zero_state(len(sentences)))
    stacked = [torch.stack(direction).numpy() for direction in layers]  # (layers, time, rows, dim)
    results = []
    for row, length in enumerate(lengths):
        parts = [direction[:, :length, row] for direction in stacked]
        # The backward direction is in its own reading order.
        ordered = [part if d == 0 else part[:, ::-1] for d, part in enumerate(parts)]
        results.append(np.concatenate(ordered, axis=-1)[:, 1:-1].copy())
    return results


def compare(
    model: BiLm, sentences: Sentences, limits: Limits, bounds: Bounds, other: AllenNlp | None
) -> None:
    """Compare the vectors and the speed of all implementations, and print the figures."""
    num_words = sum(len(sentence) for sentence in sentences)
    known = Embedder(PretrainedBiLm(model), limits)
    for _ in known.stream(sentences):
        pass
    contenders: Contenders = {
        "known": lambda: known.stream(sentences),
        "ours": lambda: Embedder(PretrainedBiLm(model), limits).stream(sentences),
        "plain": lambda: plain(model, sentences, is_distinct=False),
        "plain, distinct": lambda: plain(model, sentences, is_distinct=True),
    }
    differences = [
        float(np.abs(one - other).max(initial=0))
        for one, other in zip(contenders["ours"](), contenders["plain"](), strict=True)
    ]
    print_speeds(contenders, other, num_words, bounds)
    lengths = [len(sentence) for sentence in sentences]
    print(
        json.dumps(
            {
                "figure": "greatest difference",
                "value": max(differences),
                "is_met": max(differences) <= 1e-6,
                "sentences": len(sentences),
                "mean_words": round(statistics.mean(lengths), 1),
                "deviation": round(statistics.pstdev(lengths), 1),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
            }
        )
    )


def print_speeds(
    contenders: Contenders, other: AllenNlp | None, num_words: int, bounds: Bounds
) -> None:
    """Time all implementations in turn until the ratios are steady, and print the figures."""
    slower = ["plain", "plain, distinct"] + ([] if other is None else [*ALLENNLP])
    pairs = [*product(("ours", "known"), slower)]

    def take_round() -> dict[str, float]:
        seconds = {n: seconds_of(lambda r=run: deque(r(), 0)) for n, run in contenders.items()}
        return seconds | (
            {} if other is None else dict(zip(ALLENNLP, other.seconds(), strict=True))
        )

    def ratios_of(taken: list[dict[str, float]]) -> list[list[float]]:
        return [[seconds[b] / seconds[a] for seconds in taken] for a, b in pairs]

    taken = steady_rounds(take_round, ratios_of, bounds)
    for name in taken[0]:
        rates = [num_words / seconds[name] for seconds in taken]
        figure = {"figure": f"{name}, words/s", "median": round(statistics.median(rates))}
        print(json.dumps({**figure, "least": round(min(rates)), "greatest": round(max(rates))}))
    for (name, than), ratios in zip(pairs, ratios_of(taken), strict=True):
        print(json.dumps({"name": name, "than": than, **summary(ratios, bounds.max_spread)}))
    if other is not None:
        print(json.dumps({"figure": "allennlp", **other.versions, "difference": other.difference}))


def dump_memory(model: BiLm, sentences: Sentences, directory: Path) -> None:
    """Print the peak memory of the command for texts of two sizes."""
    PretrainedBiLm(model, None, WhitespaceTokenizer()).save_pretrained(directory / "model")
    for repeats in (1, 4):
        text = directory / f"{repeats}.txt"
        text.write_text("".join(" ".join(s) + "\n" for s in sentences) * repeats, encoding="utf-8")
        command = [sys.executable, str(ROOT / "launch/embed.py"), "--input", str(text)]
        command += ["--model", str(directory / "model"), "--output", f"{text}.hdf5"]
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begun
        # This is the maximum over all children so far, so the longer text is second.
        peak = peak_memory_bytes(resource.getrusage(resource.RUSAGE_CHILDREN)) / 2**20
        figure = {"figure": "dump", "sentences": repeats * len(sentences), "peak_mib": round(peak)}
        print(json.dumps({**figure, "seconds": round(seconds, 1)}))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", type=Path, default=ROOT / "configs/small.json", help="model configuration"
    )
    parser.add_argument("--text", type=Path, help="raw text or .csv, uncompressed or .gz")
    parser.add_argument("--sentences", type=int, default=3000, help="number of sentences")
    parser.add_argument(
        "--dump-sentences", type=int, default=2500, help="sentences of the memory test; 0 skips it"
    )
    add_bounds(parser)
    parser.add_argument("--allennlp", metavar="PYTHON", help="interpreter that has allennlp")
    parser.add_argument(
        "--bulk-rounds", type=int, default=2, help="rounds of bulk_embedding.py; 0 skips it"
    )
    parser.add_argument(
        "--threads", type=int, default=num_cores(), help="threads (default: all cores)"
    )
    parser.add_argument(
        "--batch-words", type=int, default=DEFAULT_LIMITS.batch_words, help="words per batch"
    )
    parser.add_argument("override", nargs="*", help="model settings as section.key=value")
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(arguments.threads)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # for the subprocess
    torch.manual_seed(0)
    model = BiLm(load_config(arguments.config, arguments.override).model, None).eval()
    count = max(arguments.sentences, arguments.dump_sentences)
    sentences = text_sentences(arguments.text, count) if arguments.text else zipf_sentences(count)
    limits = Limits(arguments.batch_words)
    bounds = Bounds(arguments.rounds, arguments.max_spread)
    compared = sentences[: arguments.sentences]
    with ExitStack() as stack:
        other = None
        if arguments.allennlp:
            published = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            other = AllenNlp(arguments.allennlp, model, compared, published)
            stack.callback(other.close)
        compare(model, compared, limits, bounds, other)
    if arguments.dump_sentences:
        small = BiLm(load_config(arguments.config, SMALL_MODEL).model, None)
        with tempfile.TemporaryDirectory() as directory:
            dump_memory(small, sentences[: arguments.dump_sentences], Path(directory))
    if arguments.bulk_rounds:
        del os.environ["OMP_NUM_THREADS"]
        measure(sentences[: arguments.sentences], arguments.bulk_rounds)


# The memory test varies the number of sentences, so a small model is sufficient.
SMALL_MODEL = ["model.lstm.dim=64", "model.lstm.projection_dim=32", "model.softmax.kind=full"]
SMALL_MODEL += ["model.characters.filters=[[1,16],[2,16],[3,32]]"]


if __name__ == "__main__":
    main()
