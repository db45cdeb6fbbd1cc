from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bilm.errors import ConfigError
from experiments.english_card import SOURCES as CARD_SOURCES
from experiments.english_text import (
    SOURCES,
    check_open_text,
    heldout_documents,
    normalized,
    prepare_english,
)

QUOTED = [f"“It’s {number},” she said ‘loudly’." for number in range(400)]


def write_sources(data: Path, documents: list[str]) -> None:
    (data / "open_text").mkdir(parents=True)
    for name in SOURCES:
        with gzip.open(data / "open_text" / f"{name}.txt.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{name} {document}\n" for document in documents)


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_source_has_other_documents_in_each_part(tmp_path: Path) -> None:
    write_sources(tmp_path, QUOTED)
    prepare_english(tmp_path, tmp_path / "text")
    for name in SOURCES:
        train = lines(tmp_path / "text" / "train" / f"{name}.txt")
        heldout = lines(tmp_path / "text" / "heldout" / f"{name}.txt")
        assert len(heldout) == 8
        assert len(train) == 392
        assert not set(train) & set(heldout)
        assert all(line.startswith(name) for line in train + heldout)


def test_the_held_out_documents_do_not_depend_on_their_order() -> None:
    assert heldout_documents(QUOTED) == heldout_documents(QUOTED[::-1])
    assert len(heldout_documents([str(number) for number in range(3000)])) == 30


def test_most_documents_get_ascii_quotes() -> None:
    changed = [normalized(document) for document in QUOTED]
    plain = [document for document in changed if not set("“”‘’") & set(document)]
    assert len(plain) == pytest.approx(300, abs=45)
    assert plain[0].startswith("\"It's ")
    kept = [document for document in changed if document not in plain]
    assert set(kept) <= set(QUOTED)


def test_names_a_missing_source(tmp_path: Path) -> None:
    write_sources(tmp_path, ["a b c"])
    (tmp_path / "open_text" / "python_peps.txt.gz").unlink()
    with pytest.raises(ConfigError, match=r"lacks python_peps\.txt\.gz"):
        check_open_text(tmp_path)


def test_the_card_lists_all_sources() -> None:
    assert sorted(source.name for source in CARD_SOURCES) == sorted(SOURCES)
