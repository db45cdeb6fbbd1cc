from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, ConfigError, CorpusError
from downstream import RoleLabeler, Tagger
from downstream.predict import main as predict
from downstream.tag import main
from tests.conftest import ROOT
from tests.downstream.order_task import FILLERS
from tests.downstream.tag_task import (
    make_tag_place,
    results,
    sentences,
    tag_flags,
    write_columns,
)

FILES = {
    "results.json",
    "report.md",
    "model_card.md",
    "curves.png",
    "mix.png",
    "errors.jsonl",
    "errors.html",
    "labels.png",
    "confusion.png",
    "tagger.json",
    "head.safetensors",
}
TEST = sentences(40, 3)
# The vectors of the tiny biLM are small.
FIT = ["--gamma=20", "--epochs=40", "--patience=40", "--batch-size=5", "--mix-dropout=0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a tagger on a tiny biLM; the tests share the cached representations."""
    directory = make_tag_place(tmp_path_factory.mktemp("tag"))
    more = [*model(directory), *vectors(directory), "--epochs=15", "--patience=15"]
    assert main(tag_flags(directory, "report", *more)) == 0
    return directory


def model(place: Path) -> list[str]:
    return [f"--model={place / 'model'}"]


def vectors(place: Path) -> list[str]:
    return [f"--vectors={place / 'vectors.txt'}"]


def test_learns_spans_and_writes_the_report(place: Path) -> None:
    tree = results(place, "report")
    assert {path.name for path in (place / "report").iterdir()} == FILES
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["main"] == scores["f1"] > 0.95
    assert set(scores["by_class"]) == {"LOC", "PER"}
    assert tree["labels"] == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert tree["sentences"] == {"train": 120, "validation": 40, "test": 40}
    page = (place / "report" / "report.md").read_text("utf-8")
    assert "| type (test)" in page
    assert "## Confused labels" in page
    assert "| not in training | " in page
    assert page.index("## Errors of spans") < page.index("## Confused labels")
    analysis = tree["test_analysis"]
    seen, other = (analysis[f"recall_of_{name}"] for name in ("spans_in_training", "other_spans"))
    assert (seen["total"], other["total"]) == (40, 0)
    assert sum(count for *_, count in analysis["types"]) >= 40
    errors = (place / "report" / "errors.jsonl").read_text("utf-8").splitlines()
    number = f"{len(errors)} of 40 test sentences have an error"
    assert f"{number}. [errors.html](errors.html)" in page
    shown = (place / "report" / "errors.html").read_text("utf-8")
    assert number in shown
    assert "<h1>Wrong spans</h1>\n<p>Test file <b>test.tsv</b>: F1 " in shown


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr(Embedder, "stream", fail)
    more = ["--mix=top,none", "--elmo-at=input", "--seeds=2", "--epochs=1", *vectors(place)]
    assert main(tag_flags(place, "again", *model(place), *more)) == 0
    assert len(results(place, "again")["outcomes"]) == 4
    with pytest.raises(AssertionError, match="the biLM was run"):
        main(tag_flags(place, "other", *model(place), f"--cache={place / 'empty'}"))


def test_needs_no_bilm_without_a_mix(place: Path) -> None:
    assert main(tag_flags(place, "none", "--mix=none", "--patience=8", *vectors(place))) == 0
    tree = results(place, "none")
    assert tree["bilm"] is None
    assert tree["outcomes"][0]["scores"]["test"]["f1"] > 0.9
    text = "the First  second sat"
    (tagged,) = Tagger.from_pretrained(place / "none").predict([text])
    assert [word.start for word in tagged.words] == [0, 4, 11, 18]
    with pytest.raises(ConfigError, match=r"--model is m, but .*none has no biLM; remove it"):
        Tagger.from_pretrained(place / "none", model="m")


def test_tagger_gives_the_scores_of_the_report(place: Path) -> None:
    tagger = Tagger.from_pretrained(place / "report")
    predicted = tagger.predict_words([[word for word, _ in row] for row in TEST])
    pairs = [(t, p) for row, tags in zip(TEST, predicted, strict=True)
             for (_, t), p in zip(row, tags, strict=True)]  # fmt: skip
    accuracy = sum(t == p for t, p in pairs) / len(pairs)
    expected = results(place, "report")["outcomes"][0]["scores"]["test"]["accuracy"]
    assert accuracy == pytest.approx(expected)


def test_predicts_raw_text_with_offsets(place: Path) -> None:
    tagger = Tagger.from_pretrained(place / "report")
    texts = ["the cat  First second sat", "on a second mat"]
    one, two = tagger.predict(texts)
    assert [(s.type, s.text, s.start, s.end) for s in one.spans] == [("PER", "First second", 9, 21)]
    assert [(s.type, s.text, s.start) for s in two.spans] == [("LOC", "second", 5)]
    assert [texts[0][w.start : w.end] for w in one.words] == texts[0].split()
    assert tagger.predict([]) == []
    assert tagger.predict(iter(texts)) == [one, two]
    words = [text.split() for text in texts]
    assert tagger.predict_words(map(iter, words)) == [
        tuple(w.tag for w in tagged.words) for tagged in (one, two)
    ]
    with pytest.raises(CorpusError, match="text 2 of 2 has no words"):
        tagger.predict(["a", " "])
    with pytest.raises(CorpusError, match=r"^a\.txt, line 2 has no words"):
        tagger.predict(["a", " "], names=["a.txt, line 1", "a.txt, line 2"])
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        tagger.predict("a text")
    with pytest.raises(CheckpointError, match="was not trained for RoleLabeler"):
        RoleLabeler.from_pretrained(place / "report")


def test_predict_command_reads_files_and_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "in.txt").write_text("the First second\na second\n", "utf-8")
    common = ["--head", str(place / "report"), "--input"]
    predict([*common, str(place / "in.txt"), "--output", str(place / "out.tsv")])
    lines = (place / "out.tsv").read_text("utf-8").splitlines()
    assert lines == ["the\tO", "First\tB-PER", "second\tI-PER", "", "a\tO", "second\tB-LOC"]
    data = b"the First second\na second\n\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    capsys.readouterr()
    predict([*common, "-", "--output", "-"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records[0]["spans"] == [{"type": "PER", "start": 4, "end": 16, "text": "First second"}]
    assert records[1]["words"][1] == {"word": "second", "start": 2, "end": 8, "tag": "B-LOC"}
    (place / "breaks.jsonl").write_text('{"text": ["a"]}\n{"text": ["a\\tb", "c\\nd"]}\n', "utf-8")
    breaks = [*common, str(place / "breaks.jsonl"), "--output", str(place / "breaks.tsv")]
    with pytest.raises(CorpusError, match=r"jsonl, line 2: the word 'a\\tb' contains .*\.jsonl$"):
        predict(breaks)
    predict([*breaks, "--output", str(place / "new.jsonl")])
    with pytest.raises(ConfigError, match=r"must end in \.jsonl or \.tsv"):
        predict([*common, "-", "--output", str(place / "out.csv")])
    bad = {b"": "has no rows", b"a\n\nb": "line 2 is empty", b"\xff": "line 1 is"}
    bad |= {b"a\nPe\0ter x\n": "line 2 contains a NUL"}
    for data, message in bad.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(CorpusError, match=f"standard input.* {message}"):
            predict([*common, "-", "--output", "-"])


def test_offsets_do_not_depend_on_the_kind_of_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "   the  First second  "
    (place / "raw.txt").write_text(f"{text}\na second\n", "utf-8")
    (place / "raw.jsonl").write_text(f'{{"text": "{text}"}}\n{{"text": "a second"}}\n', "utf-8")
    (place / "raw.csv").write_text(f"text\n{text}\na second\n", "utf-8")
    common = ["--head", str(place / "report"), "--output", "-", "--input"]
    printed = []
    for name in ("raw.txt", "raw.jsonl", "raw.csv", "-"):
        data = f"\ufeff{text}\r\na second\r\n\r\n".encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        predict([*common, name if name == "-" else str(place / name)])
        printed.append(capsys.readouterr().out)
    assert len(set(printed)) == 1
    record = json.loads(printed[0].splitlines()[0])
    assert record["text"] == text
    assert record["spans"] == [{"type": "PER", "start": 8, "end": 20, "text": "First second"}]


def test_a_list_of_words_is_not_tokenized_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["didn't", "First", "second"]
    path = place / "words.jsonl"
    path.write_text(json.dumps({"text": words}) + "\n", "utf-8")
    capsys.readouterr()
    predict(["--head", str(place / "report"), "--input", str(path), "--output", "-"])
    record = json.loads(capsys.readouterr().out)
    tagger = Tagger.from_pretrained(place / "report")
    assert tuple(w["tag"] for w in record["words"]) == tagger.predict_words([words])[0]
    ranges = [(w["start"], w["end"]) for w in record["words"]]
    assert ranges == [(0, 6), (7, 12), (13, 19)]


def test_test_tags_do_not_influence_the_head(place: Path, tmp_path: Path) -> None:
    shuffled = [[(word, "O") for word, _ in row] for row in TEST]
    path = write_columns(tmp_path / "shuffled.tsv", shuffled)
    more = [*model(place), "--epochs=2", f"--cache={place / 'representations'}"]
    main(tag_flags(place, "with", *more))
    main(tag_flags(place, "without", *more, f"--test={path}"))
    heads = [(place / name / "head.safetensors").read_bytes() for name in ("with", "without")]
    assert heads[0] == heads[1]


def test_parts_of_speech_are_scored_by_accuracy(place: Path) -> None:
    rows = [
        [(word, "N" if word in FILLERS else "P") for word, _ in row] for row in sentences(60, 4)
    ]
    path = write_columns(place / "pos.tsv", rows)
    files = [f"--train={path}", f"--test={path}", "--scheme=plain", "--no-crf"]
    files += [*vectors(place), "--epochs=12", "--patience=12"]
    flags = [*tag_flags(place, "pos", *model(place))[3:], *files]
    assert main(flags) == 0
    scores = results(place, "pos")["outcomes"][0]["scores"]["test"]
    assert scores["main"] == scores["accuracy"] == 1.0
    analysis = results(place, "pos")["test_analysis"]
    assert analysis["macro_f1"] == analysis["accuracy_of_words_in_training"]["share"] == 1.0
    page = (place / "pos" / "report.md").read_text("utf-8")
    assert "Macro F1, the mean over labels: 100.00." in page
    shown = (place / "pos" / "errors.html").read_text("utf-8")
    assert "<h1>Wrong tags</h1>" in shown
    assert results(place, "pos")["sentences"] == {"train": 54, "validation": 6, "test": 60}
    assert Tagger.from_pretrained(place / "pos").predict(["the second"])[0].spans == ()


@pytest.mark.parametrize(
    "more",
    [
        ["--mix=trainable"],
        ["--mix=none"],
        ["--mix=learned", "--characters", "--no-crf", "--encoder-layers=2"],
        ["--mix=average", "--elmo-at=both"],
        ["--mix=trainable", "--elmo-at=output", "--characters"],
    ],
)
def test_overfits_20_examples(place: Path, more: list[str]) -> None:
    path = write_columns(place / "few.tsv", sentences(20, 9))
    files = [f"--{name}={path}" for name in ("train", "validation", "test")]
    flags = tag_flags(place, "few", *model(place), *more, *files, "--overwrite")
    assert main([*flags, *FIT]) == 0
    assert results(place, "few")["outcomes"][0]["scores"]["train"]["f1"] == 1.0


def test_keeps_unknown_labels_as_errors(place: Path, tmp_path: Path) -> None:
    path = write_columns(tmp_path / "test.tsv", [[("the", "O"), ("cat", "B-ORG")], *TEST[:3]])
    more = [*model(place), f"--test={path}", "--unknown-labels=keep", "--epochs=1"]
    assert main([*tag_flags(place, "kept"), *more]) == 0
    scores = results(place, "kept")["outcomes"][0]["scores"]["test"]
    assert scores["by_class"]["ORG"]["recall"] == 0.0
    assert "ORG" not in json.dumps(results(place, "kept")["labels"])


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from downstream.tag import main\n"
        "from downstream.srl import main as srl\n"
        "for run in (main, srl):\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        run(['--help'])\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
