from __future__ import annotations

import gzip
import io
import json
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import ConfigError, CorpusError
from downstream import CoreferenceResolver
from downstream.coref import main
from downstream.predict import main as predict
from downstream.texts.cluster_scores import score_clusters
from downstream.texts.documents import read_documents
from tests.downstream.coref_task import (
    coref_flags,
    documents,
    make_coref_place,
    write_documents,
)
from tests.downstream.tag_task import results

FILES = {
    "results.json",
    "report.md",
    "model_card.md",
    "curves.png",
    "mix.png",
    "scores.png",
    "errors.jsonl",
    "documents.html",
    "coref.json",
    "head.safetensors",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a resolver on a tiny biLM; the tests share the cached representations."""
    directory = make_coref_place(tmp_path_factory.mktemp("coref"))
    assert main(coref_flags(directory, "report", *model(directory), *vectors(directory))) == 0
    return directory


def model(place: Path) -> list[str]:
    return [f"--model={place / 'model'}", "--gamma=5", "--mix-dropout=0"]


def vectors(place: Path) -> list[str]:
    return [f"--vectors={place / 'vectors.txt'}"]


def scores(place: Path, output: str, split: str = "test") -> dict[str, Any]:
    found: dict[str, Any] = results(place, output)["outcomes"][0]["scores"][split]
    return found


def test_learns_clusters_and_writes_the_report(place: Path) -> None:
    tree = results(place, "report")
    assert {path.name for path in (place / "report").iterdir()} == FILES
    test = scores(place, "report")
    assert test["main"] == test["all"]["conll"] > 0.9
    assert test["all"]["mentions"]["f1"] > 0.9
    assert tree["singletons"] is True
    assert tree["documents"] == {"train": 24, "validation": 8, "test": 8}
    assert tree["summary"]["trainable"]["test"]["main"]["mean"] == test["all"]["conll"]
    page = (place / "report" / "report.md").read_text("utf-8")
    assert "| CEAF-m, without singletons" in page
    assert "missed mentions" in page
    assert "more than 3 words, which cannot be found (--max-span-words): 0 of 120 train" in page
    assert tree["mentions"]["test"] == 40
    assert tree["mentions_too_long"] == {"train": 0, "validation": 0, "test": 0}


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr(Embedder, "stream", fail)
    more = ["--mix=top,none", "--seeds=2", "--epochs=1", *vectors(place)]
    assert main(coref_flags(place, "again", *model(place), *more)) == 0
    assert len(results(place, "again")["outcomes"]) == 4
    with pytest.raises(AssertionError, match="the biLM was run"):
        main(coref_flags(place, "other", *model(place), f"--cache={place / 'empty'}"))


def test_same_seed_gives_the_same_head(place: Path) -> None:
    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        more = ["--epochs=2", f"--seed={seed}", "--dropout=.2"]
        main(coref_flags(place, name, *model(place), *more))
    one, two, three = (
        (place / name / "head.safetensors").read_bytes() for name in ("one", "two", "three")
    )
    assert one == two != three


def test_test_clusters_do_not_influence_the_head(place: Path, tmp_path: Path) -> None:
    rows = [{**row, "clusters": [[[0, 1]]]} for row in documents(8, 3)]
    path = write_documents(tmp_path / "other.jsonl", rows)
    main(coref_flags(place, "with", *model(place), "--epochs=2"))
    main(coref_flags(place, "without", *model(place), "--epochs=2", f"--test={path}"))
    heads = [(place / name / "head.safetensors").read_bytes() for name in ("with", "without")]
    assert heads[0] == heads[1]


def test_needs_no_bilm_without_a_mix(place: Path) -> None:
    assert main(coref_flags(place, "none", "--mix=none", *vectors(place))) == 0
    tree = results(place, "none")
    assert tree["bilm"] is None
    assert scores(place, "none")["all"]["conll"] > 0.9
    (found,) = CoreferenceResolver.from_pretrained(place / "none").predict(
        ["First sat . First sat"]
    )
    assert [[m.start for m in cluster] for cluster in found.clusters] == [[0, 12]]


@pytest.mark.parametrize(
    "more",
    [
        ["--mix=trainable"],
        ["--mix=none"],
        ["--mix=average", "--elmo-at=both", "--encoder-layers=2"],
        ["--mix=trainable", "--elmo-at=output", "--characters", "--no-singletons"],
    ],
)
def test_overfits_20_documents(place: Path, more: list[str]) -> None:
    path = write_documents(place / "few.jsonl", documents(20, 9))
    files = [f"--{name}={path}" for name in ("train", "validation", "test")]
    flags = coref_flags(place, "few", *model(place), *vectors(place), *more, *files, "--overwrite")
    assert main([*flags, "--epochs=40", "--patience=40"]) == 0
    assert scores(place, "few", "train")["all"]["conll"] == 1.0
    tree = results(place, "few")
    assert tree["test_documents_in_training"] == tree["validation_documents_in_training"] == 20


def test_singletons_follow_the_training_file(place: Path, tmp_path: Path) -> None:
    path = write_documents(tmp_path / "chains.jsonl", documents(8, 1, singletons=False))
    more = [*model(place), *vectors(place), "--epochs=1"]
    main(coref_flags(place, "chains", *more, f"--train={path}"))
    assert results(place, "chains")["singletons"] is False
    main(coref_flags(place, "dropped", *more, "--no-singletons"))
    assert results(place, "dropped")["singletons"] is False
    for name in ("chains", "dropped"):
        split = scores(place, name)
        assert split["all"] == split["chains"]  # the gold singletons of the test file are removed
        page = (place / name / "report.md").read_text("utf-8")
        assert "Clusters of one mention are neither predicted nor scored." in page
    split = scores(place, "report")
    assert split["all"]["muc"] == split["chains"]["muc"]


def test_resolver_gives_the_scores_of_the_report(place: Path) -> None:
    resolver = CoreferenceResolver.from_pretrained(place / "report")
    file = read_documents(place / "test.jsonl")
    predicted = resolver.predict_words([document.sentences for document in file.documents])
    found = score_clusters([document.clusters for document in file.documents], predicted)
    assert found.conll == pytest.approx(scores(place, "report")["all"]["conll"])


def test_predicts_raw_text_with_offsets(place: Path) -> None:
    resolver = CoreferenceResolver.from_pretrained(place / "report")
    texts = ["First sat on a  mat . A cat sat . The cat sat on First"]
    (found,) = resolver.predict(texts)
    mentions = [[(m.text, m.start, m.end) for m in cluster] for cluster in found.clusters]
    assert [("First", 0, 5), ("First", 49, 54)] in mentions
    assert all(texts[0][m.start : m.end] == m.text for c in found.clusters for m in c)
    assert resolver.predict([]) == []
    assert resolver.predict(iter(texts)) == [found]
    clusters = resolver.predict_words(iter([[texts[0].split()]]), genres=iter([None]))
    assert resolver.predict_words([[texts[0].split()]], speakers=[None]) == clusters
    with pytest.raises(ValueError, match="there are 2 genres for 1 documents"):
        resolver.predict_words([[["a"]]], genres=["x", "y"])
    with pytest.raises(TypeError, match="document 1 of 1: the genre is 5; expected a string"):
        resolver.predict_words([[["a"]]], genres=[5])  # type: ignore[list-item]
    with pytest.raises(CorpusError, match="document 2 of 2 has no words"):
        resolver.predict(["a", " "])
    with pytest.raises(CorpusError, match=r"^a\.txt, line 2 has no words"):
        resolver.predict(["a", " "], names=["a.txt, line 1", "a.txt, line 2"])
    with pytest.raises(TypeError, match=r"pass \[document\]"):
        resolver.predict("a text")
    with pytest.raises(TypeError, match="document 1 of 1: sentence 0 is 'a'"):
        resolver.predict_words([["a", "b"]])
    with pytest.raises(CorpusError, match="document 1 of 1 has 2 words and 1 speakers"):
        resolver.predict_words([[["a", "b"]]], speakers=[["A"]])


def test_windows_do_not_change_predictions_if_nothing_is_cut(place: Path) -> None:
    resolver = CoreferenceResolver.from_pretrained(place / "report")
    rows = documents(6, 5)
    together = resolver.predict_words([row["sentences"] for row in rows])
    separately = [resolver.predict_words([row["sentences"]])[0] for row in rows]
    assert together == separately
    assert all(together)


def test_long_documents_are_read_in_windows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = CoreferenceResolver.from_pretrained(place / "report")
    (row,) = documents(1, 5)
    sentences = row["sentences"] * 12
    name = row["sentences"][2][-1]
    (whole,) = resolver.predict_words([sentences])
    resolver.description = resolver.description.model_copy(update={"window_words": 40})
    monkeypatch.setattr("downstream.predictors.coreference.WINDOW_WORDS", 50)
    sizes: list[int] = []
    read = resolver._read

    def counted(texts: list[list[str]]) -> Any:
        sizes.append(sum(map(len, texts)))
        return read(texts)

    monkeypatch.setattr(resolver, "_read", counted)
    (parts,) = resolver.predict_words([sentences])
    assert len(sizes) > 5
    assert max(sizes) <= 40
    # Overlapping windows join the clusters of a name that occurs again and again.
    words = [word for sentence in sentences for word in sentence]
    places = {(i, i) for i, word in enumerate(words) if word == name}
    assert [cluster for cluster in whole if places <= {*cluster}]
    assert [cluster for cluster in parts if places <= {*cluster}]


def test_predict_command_reads_files_and_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["  First sat . First sat ", "the cat sat"]
    (place / "in.txt").write_text("\n".join(texts) + "\n", "utf-8")
    (place / "in.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), "utf-8")
    common = ["--head", str(place / "report"), "--input"]
    predict([*common, str(place / "in.txt"), "--output", str(place / "out.jsonl")])
    first = (place / "out.jsonl").read_text("utf-8")
    again = ["--output", str(place / "out.jsonl"), "--overwrite"]
    predict([*common, str(place / "in.jsonl"), *again])
    assert (place / "out.jsonl").read_text("utf-8") == first
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    capsys.readouterr()
    predict([*common, "-", "--output", "-"])
    assert capsys.readouterr().out == first
    record = json.loads(first.splitlines()[0])
    assert [{"start": 2, "end": 7, "text": "First"}, {"start": 14, "end": 19, "text": "First"}] in [
        cluster[:2] for cluster in record["clusters"]
    ]
    (place / "words.jsonl").write_text(json.dumps({"text": texts[0].split()}), "utf-8")
    predict([*common, str(place / "words.jsonl"), "--output", "-"])
    of_words = json.loads(capsys.readouterr().out)
    assert of_words["text"] == texts[0].strip()
    starts = [[mention["start"] for mention in c] for c in of_words["clusters"]]
    assert starts == [[mention["start"] - 2 for mention in c] for c in record["clusters"]]
    with pytest.raises(ConfigError, match=r"must end in \.jsonl"):
        predict([*common, "-", "--output", str(place / "out.csv")])


def test_reads_compressed_files_and_splits_off_validation(place: Path) -> None:
    path = place / "train.jsonl.gz"
    path.write_bytes(gzip.compress((place / "train.jsonl").read_bytes()))
    flags = [f"--train={path}", f"--test={path}", f"--output={place / 'split'}", "--epochs=1"]
    assert main([*flags, "--mix=none", "--max-span-words=2", "--validation-share=.25"]) == 0
    tree = results(place, "split")
    sizes = tree["documents"]
    assert sizes["train"] + sizes["validation"] == sizes["test"] == 24
    assert sizes["validation"] > 0
    assert tree["validation_documents_in_training"] == 0  # although documents occur several times
    assert tree["test_documents_in_training"] == sizes["train"]


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.depth += tag == "span"

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag == "span"
        assert self.depth >= 0

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_of_documents_is_balanced(place: Path) -> None:
    parser = _Text()
    parser.feed((place / "report" / "documents.html").read_text("utf-8"))
    assert parser.depth == 0
    assert "8 of 8 test documents" in parser.text
