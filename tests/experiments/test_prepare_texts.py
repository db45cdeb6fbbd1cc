from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from bilm.errors import ConfigError
from experiments.prepare_texts import NEEDED, check_data, clean, prepare


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        (r"shares\fall", "shares fall"),
        ("the country #39;s  deadliest", "the country's deadliest"),
        ("pay back  #36;3.23 billion", "pay back $3.23 billion"),
        ("AT&amp;amp;T &lt;b&gt;rose&lt;/b&gt; <br/>today", "AT&T rose today"),
        ("  spaces\tand\nlines ", "spaces and lines"),
    ],
)
def test_removes_remains_of_html(raw: str, cleaned: str) -> None:
    assert clean(raw) == cleaned


def _gz(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(text)


def test_keeps_test_texts_out_of_language_model_texts(tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "texts"
    _gz(data / "ag_news/train.csv.gz", '"3","Title","Described #39;here"\n"1","","Only this"\n')
    _gz(data / "ag_news/test.csv.gz", '"2","Secret","of the test"\n')
    _gz(data / "lm/reuters21578.txt.gz", "A wire <BP> said\n\n")
    _gz(data / "lm/imdb_unlabelled.txt.gz", "A <br />review\n")
    (data / "sst5").mkdir()
    for name in ("train", "dev", "test"):
        (data / f"sst5/stsa.fine.{name}").write_text("4 a stirring , funny film\n0 no\n")
    prepare(data, output)
    assert (output / "news.txt").read_text().splitlines() == [
        "Title Described'here",
        "Only this",
        "A wire said",
    ]
    assert (output / "films.txt").read_text() == "A review\n"
    with (output / "ag_test.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["label", "text"], ["2", "Secret of the test"]]
    with (output / "sst5_dev.csv").open(newline="") as file:
        assert list(csv.reader(file))[1:] == [["4", "a stirring , funny film"], ["0", "no"]]


def test_names_all_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_data(tmp_path)
    assert all(name in str(caught.value) for name in NEEDED)
