"""Hostile files that replace those of the project, and hostile paths.

A case is a name and a function that changes a `Sandbox` and returns an `Attack`. `PAYLOADS` can
replace any file; the payloads of one format are in `hostile_formats.py` and `hostile_json.py`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bilm.corpus.reader import Corpus
from bilm.parity import compare
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.lines import LineReader
from bilm.text.vocabulary import Vocabulary
from bilm.training.config import load_config
from data_tools.reading.chunks import find_inputs
from downstream.classifier import TextClassifier
from downstream.features.word_vectors import WordVectors, vectors_digest
from downstream.texts.labelled import TextColumns, read_texts
from tests.chaos.readable_files import LINK_FREE_DIRECTORIES, READABLE_FILES, ReadableFile
from tests.chaos.sandbox import (
    Sandbox,
)


@dataclass(frozen=True)
class Attack:
    """An action on a hostile file, and the name that its error must contain.

    A `harmless` file may also be read without an error, if that has no side effect.
    """

    action: Callable[[], object]
    name: str
    harmless: bool = False


class Case(NamedTuple):
    """A hostile file and its name."""

    name: str
    prepare: Callable[[Sandbox], Attack]


def _pickle(path: Path, sandbox: Sandbox) -> None:
    path.write_bytes(sandbox.pickled())


def _torch_save(path: Path, sandbox: Sandbox) -> None:
    path.write_bytes(sandbox.torch_saved())


def _fifo(path: Path, sandbox: Sandbox) -> None:
    os.mkfifo(path)


def _endless(path: Path, sandbox: Sandbox) -> None:
    path.symlink_to("/dev/zero")


def _directory(path: Path, sandbox: Sandbox) -> None:
    path.mkdir()


def _link_outside(path: Path, sandbox: Sandbox) -> None:
    path.symlink_to(sandbox.secret)


def _link_by_dots(path: Path, sandbox: Sandbox) -> None:
    path.symlink_to(os.path.relpath(sandbox.secret, path.parent))


def _empty(path: Path, sandbox: Sandbox) -> None:
    path.write_bytes(b"")


PAYLOADS: dict[str, Callable[[Path, Sandbox], None]] = {
    "a pickle": _pickle,
    "a torch.save": _torch_save,
    "a pipe": _fifo,
    "an endless device": _endless,
    "a directory": _directory,
    "a link outside": _link_outside,
    "a link by ../": _link_by_dots,
    "an empty file": _empty,
}


def _replaced(
    file: ReadableFile, payload: Callable[[Path, Sandbox], None], sign: bool, p: Sandbox
) -> Attack:
    path = file.path(p)
    path.unlink(missing_ok=True)
    payload(path, p)
    if sign and file.sign is not None:
        file.sign(p)
    return Attack(functools.partial(file.action, p), file.error_name(p))


def written(where: str, data: bytes, sandbox: Sandbox) -> Attack:
    """Write `data`, with its digest, to the file `where`."""
    file = READABLE_FILES[where]
    path = file.path(sandbox)
    path.write_bytes(data)
    if file.sign is not None:
        file.sign(sandbox)
    return Attack(functools.partial(file.action, sandbox), file.error_name(sandbox))


def _path_readers(sandbox: Sandbox) -> Iterator[tuple[str, Callable[[str], object]]]:
    """Yield the functions that take a path from a user."""
    yield "load_config", load_config
    yield "from_pretrained", PretrainedBiLm.from_pretrained
    yield "Corpus.open", Corpus.open
    yield "from_published", lambda n: PretrainedBiLm.from_published(n, n)
    yield "Vocabulary.read", lambda name: Vocabulary.read(Path(name))
    yield "vectors_digest", vectors_digest
    yield "WordVectors.read", WordVectors.read
    columns = TextColumns(file_format="text")
    yield "read_texts", lambda name: read_texts(LineReader(Path(name)), columns)
    yield "find_inputs", lambda name: find_inputs([name], "text", "--input")
    yield "TextClassifier", TextClassifier.from_pretrained
    yield "compare", lambda name: compare(Path(name))


def _named(reader: str, form: str, sandbox: Sandbox) -> Attack:
    name = form.replace("MARKER", str(sandbox.marker))
    action = dict(_path_readers(sandbox))[reader]
    return Attack(lambda: action(name), "marker")


NAMES = (
    "pipe:touch MARKER",
    "|touch MARKER",
    "file:///x;touch MARKER",
    "$(touch MARKER)",
    "`touch MARKER`",
)


def replaced_cases() -> Iterator[Case]:
    """Yield every payload for every file, also signed where there is a digest."""
    for where, file in READABLE_FILES.items():
        for what, payload in PAYLOADS.items():
            if "link" in what and not where.startswith(LINK_FREE_DIRECTORIES):
                continue
            signs = (False, True) if file.sign is not None else (False,)
            for sign in signs:
                name = f"{what} for {where}" + (", signed" if sign else "")
                if sign and what == "a directory":
                    continue  # it cannot be signed
                yield Case(name, functools.partial(_replaced, file, payload, sign))


def named_cases() -> Iterator[Case]:
    """Yield paths that a careless reader would pass to a shell."""
    for reader, _ in _path_readers(Sandbox(Path(), Path())):
        for form in NAMES:
            yield Case(f"{form} for {reader}", functools.partial(_named, reader, form))
