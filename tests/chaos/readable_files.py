"""The files that the project reads, and the user action that reads each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bilm.corpus.reader import Corpus
from bilm.embedding.dump import open_dump
from bilm.parity import compare
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import TokenizerSpec, load_tokenizer
from bilm.text.vocabulary import Vocabulary
from bilm.training.config import load_config
from bilm.training.run_directory import model_of_run
from data_tools.reading.chunks import find_inputs, read_chunks, texts_of
from downstream.classifier import TextClassifier
from downstream.features.store import open_stores
from downstream.features.word_vectors import WordVectors
from downstream.texts.labelled import read_labelled
from tests.chaos.sandbox import (
    TEXTS,
    Sandbox,
    sign_checkpoint,
    sign_corpus,
    sign_store,
)


def read_corpus(directory: Path) -> None:
    """Read everything in a corpus."""
    corpus = Corpus.open(directory)
    corpus.verify()
    corpus.tokenizer()
    for split in corpus.splits:
        for index in range(len(corpus.blocks(split))):
            ids, _ = corpus.block(split, index)
            corpus.lexicon.char_ids(ids)
    for word_id in range(len(corpus.lexicon)):
        corpus.lexicon.word(word_id)


def finish_dump(output: Path) -> None:
    """Resume an unfinished dump of vectors, and finish it."""
    with open_dump(output, {"model": "m"}, overwrite=False) as dump:
        assert dump is not None
        dump.finish(None)


def read_store(sandbox: Sandbox) -> None:
    """Read all stored representations."""
    embedder = TextClassifier.from_pretrained(
        sandbox.inside / "classifier", model=sandbox.inside / "model"
    )._embedder
    store = open_stores(sandbox.inside / "store", "words", embedder, {"texts": TEXTS})["texts"]
    store.rows.slice(0, store.rows.shape[0])
    [store.types[i] for i in store.word_ids]


def read_input(path: Path) -> None:
    """Read a text file as data_tools.build_corpus does."""
    for chunk in read_chunks(find_inputs([str(path)], None, "--input")):
        texts_of(chunk, "strict")


def classify(sandbox: Sandbox) -> None:
    """Load the classifier."""
    TextClassifier.from_pretrained(sandbox.inside / "classifier", model=sandbox.inside / "model")


def store_directory(sandbox: Sandbox) -> Path:
    """Return the directory of the stored words."""
    return next((sandbox.inside / "store").glob("words-*"))


def checkpoint_directory(sandbox: Sandbox) -> Path:
    """Return the directory of the only checkpoint."""
    return sandbox.inside / "run/checkpoints/step-00000001"


class ReadableFile(NamedTuple):
    """A file that can be replaced, the action that reads it, and the function that signs it."""

    path: Callable[[Sandbox], Path]
    action: Callable[[Sandbox], object]
    sign: Callable[[Sandbox], object] | None = None
    by_directory: bool = False  # the error may name another file in the directory

    def error_name(self, sandbox: Sandbox) -> str:
        """Return the name that an error must contain."""
        path = self.path(sandbox)
        return path.parent.name if self.by_directory else path.name


def _readable(name: str, action: Callable[[Sandbox], object]) -> ReadableFile:
    return ReadableFile(lambda sandbox: sandbox.inside / name, action)


def _corpus_file(name: str) -> ReadableFile:
    return ReadableFile(
        lambda sandbox: sandbox.inside / "corpus" / name,
        lambda sandbox: read_corpus(sandbox.inside / "corpus"),
        None if name == "corpus.json" else lambda sandbox: sign_corpus(sandbox.inside / "corpus"),
        by_directory=True,
    )


def _checkpoint_file(name: str) -> ReadableFile:
    return ReadableFile(
        lambda sandbox: checkpoint_directory(sandbox) / name,
        lambda sandbox: model_of_run(sandbox.inside / "run", "newest"),
        None if name == "manifest.json" else lambda p: sign_checkpoint(checkpoint_directory(p)),
    )


def _store_file(name: str) -> ReadableFile:
    return ReadableFile(
        lambda sandbox: store_directory(sandbox) / name,
        read_store,
        None if name == "store.json" else lambda sandbox: sign_store(store_directory(sandbox)),
        by_directory=True,
    )


def _model(sandbox: Sandbox) -> object:
    return PretrainedBiLm.from_pretrained(sandbox.inside / "model")


def _published(sandbox: Sandbox) -> object:
    published = sandbox.inside / "published"
    return PretrainedBiLm.from_published(
        published / "options.json", published / "weights.hdf5", published / "vocab.txt"
    )


def _dump(sandbox: Sandbox) -> None:
    finish_dump(sandbox.inside / "vectors.hdf5")


def _pieces(sandbox: Sandbox) -> object:
    return load_tokenizer(TokenizerSpec(name="sentencepiece"), sandbox.inside / "model")


READABLE_FILES: dict[str, ReadableFile] = {
    "config": _readable("config.json", lambda p: load_config(p.inside / "config.json")),
    **{f"model/{n}": _readable(f"model/{n}", _model) for n in ("config.json", "model.safetensors")},
    "model/vocab.txt": _readable("model/vocab.txt", _model),
    "model/tokenizer.model": _readable("model/tokenizer.model", _pieces),
    **{
        f"published/{n}": _readable(f"published/{n}", _published)
        for n in ("options.json", "weights.hdf5", "vocab.txt")
    },
    **{
        f"corpus/{n}": _corpus_file(n)
        for n in (
            "corpus.json",
            "vocab.txt",
            "lexicon.bin",
            "lexicon.offsets.npy",
            "lexicon.counts.npy",
            "train-00000.tar",
        )
    },
    **{
        f"checkpoint/{n}": _checkpoint_file(n)
        for n in ("manifest.json", "run.json", "weights.safetensors", "optimizer.safetensors")
    },
    **{
        f"store/{n}": _store_file(n)
        for n in ("store.json", "layers.bin", "offsets.bin", "words.bin", "types.json")
    },
    "classifier/classifier.json": _readable("classifier/classifier.json", classify),
    "classifier/head.safetensors": _readable("classifier/head.safetensors", classify),
    "dump/run.json": _readable("vectors.hdf5.partial/run.json", _dump)._replace(by_directory=True),
    "dump/part": _readable("vectors.hdf5.partial/part-00000000.safetensors", _dump),
    "vocabulary": _readable("v.txt", lambda p: Vocabulary.read(p.inside / "v.txt")),
    "vectors": _readable("v.vec", lambda p: WordVectors.read(p.inside / "v.vec")),
    "parity": _readable("trace.npz", lambda p: compare(p.inside / "trace.npz")),
    **{
        f"texts{suffix}": _readable(
            f"t{suffix}", lambda p, s=suffix: read_labelled(p.inside / f"t{s}")
        )
        for suffix in (".csv", ".tsv", ".jsonl", ".csv.gz")
    },
    **{
        f"input{suffix}": _readable(
            f"i{suffix}", lambda p, s=suffix: read_input(p.inside / f"i{s}")
        )
        for suffix in (".txt", ".jsonl", ".csv", ".txt.gz", ".txt.bz2", ".txt.xz", ".txt.zst")
    },
}
# Files in directories that another person may have made, where links are not allowed.
LINK_FREE_DIRECTORIES = (
    "model/",
    "published/",
    "corpus/",
    "checkpoint/",
    "store/",
    "classifier/",
    "dump/",
)
