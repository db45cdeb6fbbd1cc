"""Hostile files, each in the place of one that the project reads, and what a user would then do.

A case is a name and a function that spoils a `Place` and returns an `Attack`. The payloads that
any file can be replaced with are in `PAYLOADS`; those of one format are in `hostile_formats.py`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from data_tools.reading.chunks import find_inputs, read_chunks, read_lines
from downstream.classifier import TextClassifier
from downstream.features.store import open_store
from downstream.features.word_vectors import WordVectors, vectors_digest
from downstream.texts.labelled import read_labelled, read_texts
from tests.chaos.hostile_place import (
    TEXTS,
    Place,
    sign_checkpoint,
    sign_corpus,
    sign_store,
)


@dataclass(frozen=True)
class Attack:
    """What a user does with the spoilt file, and what the error must name.

    A `harmless` one may also be read, if it has no effect.
    """

    act: Callable[[], object]
    names: str
    harmless: bool = False


class Case(NamedTuple):
    """One hostile thing."""

    name: str
    prepare: Callable[[Place], Attack]


# -- what a user does ------------------------------------------------------------------------------


def read_corpus(directory: Path) -> None:
    """Everything that can be read of a corpus."""
    corpus = Corpus.open(directory)
    corpus.verify()
    corpus.tokenizer()
    for split in corpus.splits:
        for index in range(len(corpus.blocks(split))):
            ids, _ = corpus.block(split, index)
            corpus.lexicon.char_ids(ids)
    for word_id in range(len(corpus.lexicon)):
        corpus.lexicon.word(word_id)


def go_on_with_dump(output: Path) -> None:
    """Resume an unfinished dump, and finish it."""
    with open_dump(output, {"model": "m"}, overwrite=False) as dump:
        assert dump is not None
        dump.finish(None)


def read_store(place: Place) -> None:
    """Open stored representations, and look at all of them."""
    embedder = TextClassifier.from_pretrained(
        place.inside / "classifier", model=place.inside / "model"
    )._embedder
    store = open_store(place.inside / "store", "words", embedder, TEXTS)
    store.rows.slice(0, store.rows.shape[0])
    [store.types[i] for i in store.word_ids]


def read_input(path: Path) -> None:
    """What data_tools.build_corpus does with a file of text."""
    for chunk in read_chunks(find_inputs([str(path)], None, "--input"), "text", "strict"):
        read_lines(chunk, "text", "strict")


def classify(place: Place) -> None:
    """Load the classifier."""
    TextClassifier.from_pretrained(place.inside / "classifier", model=place.inside / "model")


def store_directory(place: Place) -> Path:
    """The directory of the stored words."""
    return next((place.inside / "store").glob("words-*"))


def checkpoint_directory(place: Place) -> Path:
    """The one checkpoint."""
    return place.inside / "run/checkpoints/step-00000001"


# -- the files, by the name of their reader --------------------------------------------------------


class Spot(NamedTuple):
    """A file that can be replaced: where it is, who reads it, and how its digest is put right."""

    file: Callable[[Place], Path]
    act: Callable[[Place], object]
    sign: Callable[[Place], object] | None = None
    by_directory: bool = False  # the error may name another file of the same directory

    def names(self, place: Place) -> str:
        """What an error must name."""
        path = self.file(place)
        return path.parent.name if self.by_directory else path.name


def _at(name: str, act: Callable[[Place], object]) -> Spot:
    return Spot(lambda place: place.inside / name, act)


def _corpus_spot(name: str) -> Spot:
    return Spot(
        lambda place: place.inside / "corpus" / name,
        lambda place: read_corpus(place.inside / "corpus"),
        None if name == "corpus.json" else lambda place: sign_corpus(place.inside / "corpus"),
        by_directory=True,
    )


def _checkpoint_spot(name: str) -> Spot:
    return Spot(
        lambda place: checkpoint_directory(place) / name,
        lambda place: model_of_run(place.inside / "run", "newest"),
        None if name == "manifest.json" else lambda p: sign_checkpoint(checkpoint_directory(p)),
    )


def _store_spot(name: str) -> Spot:
    return Spot(
        lambda place: store_directory(place) / name,
        read_store,
        None if name == "store.json" else lambda place: sign_store(store_directory(place)),
        by_directory=True,
    )


def _model(place: Place) -> object:
    return PretrainedBiLm.from_pretrained(place.inside / "model")


def _published(place: Place) -> object:
    published = place.inside / "published"
    return PretrainedBiLm.from_published(
        published / "options.json", published / "weights.hdf5", published / "vocab.txt"
    )


def _dump(place: Place) -> None:
    go_on_with_dump(place.inside / "vectors.hdf5")


def _pieces(place: Place) -> object:
    return load_tokenizer(TokenizerSpec(name="sentencepiece"), place.inside / "model")


SPOTS: dict[str, Spot] = {
    "config": _at("config.json", lambda p: load_config(p.inside / "config.json")),
    **{f"model/{n}": _at(f"model/{n}", _model) for n in ("config.json", "model.safetensors")},
    "model/vocab.txt": _at("model/vocab.txt", _model),
    "model/tokenizer.model": _at("model/tokenizer.model", _pieces),
    **{
        f"published/{n}": _at(f"published/{n}", _published)
        for n in ("options.json", "weights.hdf5", "vocab.txt")
    },
    **{
        f"corpus/{n}": _corpus_spot(n)
        for n in (
            *("corpus.json", "vocab.txt", "lexicon.bin", "lexicon.offsets.npy"),
            *("lexicon.counts.npy", "train-00000.tar"),
        )
    },
    **{
        f"checkpoint/{n}": _checkpoint_spot(n)
        for n in ("manifest.json", "run.json", "weights.safetensors", "optimizer.safetensors")
    },
    **{
        f"store/{n}": _store_spot(n)
        for n in ("store.json", "layers.bin", "offsets.bin", "words.bin", "types.json")
    },
    **{f"classifier/{n}": _at(f"classifier/{n}", classify) for n in ("classifier.json",)},
    "classifier/head.safetensors": _at("classifier/head.safetensors", classify),
    "dump/run.json": _at("vectors.hdf5.partial/run.json", _dump)._replace(by_directory=True),
    "dump/part": _at("vectors.hdf5.partial/part-00000000.safetensors", _dump),
    "vocabulary": _at("v.txt", lambda p: Vocabulary.read(p.inside / "v.txt")),
    "vectors": _at("v.vec", lambda p: WordVectors.read(p.inside / "v.vec")),
    "parity": _at("trace.npz", lambda p: compare(p.inside / "trace.npz")),
    **{
        f"texts{suffix}": _at(f"t{suffix}", lambda p, s=suffix: read_labelled(p.inside / f"t{s}"))
        for suffix in (".csv", ".tsv", ".jsonl", ".csv.gz")
    },
    **{
        f"input{suffix}": _at(f"i{suffix}", lambda p, s=suffix: read_input(p.inside / f"i{s}"))
        for suffix in (".txt", ".jsonl", ".csv", ".txt.gz", ".txt.bz2", ".txt.xz", ".txt.zst")
    },
}
# Found through directories that somebody else may have made: a link there is not the user's own.
DIRECTORIES = ("model/", "published/", "corpus/", "checkpoint/", "store/", "classifier/", "dump/")


# -- what any of them can be replaced with ---------------------------------------------------------


def _pickle(path: Path, place: Place) -> None:
    path.write_bytes(place.pickled())


def _torch_save(path: Path, place: Place) -> None:
    path.write_bytes(place.torch_saved())


def _fifo(path: Path, place: Place) -> None:
    os.mkfifo(path)


def _endless(path: Path, place: Place) -> None:
    path.symlink_to("/dev/zero")


def _directory(path: Path, place: Place) -> None:
    path.mkdir()


def _link_outside(path: Path, place: Place) -> None:
    path.symlink_to(place.secret)


def _link_by_dots(path: Path, place: Place) -> None:
    path.symlink_to(os.path.relpath(place.secret, path.parent))


def _empty(path: Path, place: Place) -> None:
    path.write_bytes(b"")


PAYLOADS: dict[str, Callable[[Path, Place], None]] = {
    "a pickle": _pickle,
    "a torch.save": _torch_save,
    "a pipe": _fifo,
    "an endless device": _endless,
    "a directory": _directory,
    "a link outside": _link_outside,
    "a link by ../": _link_by_dots,
    "an empty file": _empty,
}


def _replaced(spot: Spot, payload: Callable[[Path, Place], None], sign: bool, p: Place) -> Attack:
    path = spot.file(p)
    path.unlink(missing_ok=True)
    payload(path, p)
    if sign and spot.sign is not None:
        spot.sign(p)
    return Attack(functools.partial(spot.act, p), spot.names(p))


def written(where: str, data: bytes, place: Place) -> Attack:
    """Put `data`, with its digest, in the place `where`."""
    spot = SPOTS[where]
    path = spot.file(place)
    path.write_bytes(data)
    if spot.sign is not None:
        spot.sign(place)
    return Attack(functools.partial(spot.act, place), spot.names(place))


def _names_passed(place: Place) -> Iterator[tuple[str, Callable[[str], object]]]:
    """What takes a path from a user."""
    yield "load_config", load_config
    yield "from_pretrained", PretrainedBiLm.from_pretrained
    yield "Corpus.open", Corpus.open
    yield "from_published", lambda n: PretrainedBiLm.from_published(n, n)
    yield "Vocabulary.read", lambda name: Vocabulary.read(Path(name))
    yield "vectors_digest", vectors_digest
    yield "WordVectors.read", WordVectors.read
    yield "read_texts", lambda name: read_texts(name, file_format="text")
    yield "find_inputs", lambda name: find_inputs([name], "text", "--input")
    yield "TextClassifier", TextClassifier.from_pretrained
    yield "compare", lambda name: compare(Path(name))


def _named(reader: str, form: str, place: Place) -> Attack:
    name = form.replace("MARKER", str(place.marker))
    act = dict(_names_passed(place))[reader]
    return Attack(lambda: act(name), "marker")


NAMES = (
    "pipe:touch MARKER",
    "|touch MARKER",
    "file:///x;touch MARKER",
    "$(touch MARKER)",
    "`touch MARKER`",
)


def replaced_cases() -> Iterator[Case]:
    """Every payload in every place, with its digest put right where there is one."""
    for where, spot in SPOTS.items():
        for what, payload in PAYLOADS.items():
            if "link" in what and not where.startswith(DIRECTORIES):
                continue
            signs = (False, True) if spot.sign is not None else (False,)
            for sign in signs:
                name = f"{what} for {where}" + (", signed" if sign else "")
                if sign and what in ("a directory",):
                    continue  # there is nothing to sign
                yield Case(name, functools.partial(_replaced, spot, payload, sign))


def named_cases() -> Iterator[Case]:
    """Names that a careless reader would hand to a shell."""
    for reader, _ in _names_passed(Place(Path(), Path())):
        for form in NAMES:
            yield Case(f"{form} for {reader}", functools.partial(_named, reader, form))
