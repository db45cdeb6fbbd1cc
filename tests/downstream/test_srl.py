from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, ConfigError, CorpusError
from downstream import RoleLabeler, Tagger
from downstream.predict import main as predict
from downstream.srl import main
from tests.downstream.tag_task import make_tag_place, results, roles, tag_flags, write_roles


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_tag_place(tmp_path_factory.mktemp("srl"))
    assert main(flags(directory, "report")) == 0
    return directory


def flags(place: Path, output: str, *more: str) -> list[str]:
    common = [f"--model={place / 'model'}", f"--vectors={place / 'vectors.txt'}", "--patience=15"]
    return tag_flags(place, output, *common, "--epochs=15", *more, suffix=".jsonl")


def test_uses_the_predicate_and_excludes_it_from_the_score(place: Path) -> None:
    tree = results(place, "report")
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["f1"] > 0.95  # the two predicates of a sentence have different arguments
    assert set(scores["by_class"]) == {"ARG0"}
    assert tree["predicates"] == {"train": 120, "validation": 40, "test": 40}
    assert tree["labels"] == ["O", "B-ARG0", "I-ARG0", "B-V", "I-V"]


def test_errors_name_the_predicate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses: list[str] = []
    monkeypatch.setattr(
        "downstream.reports.report.plot_curves",
        lambda _, path, names, *rest: losses.append(names.loss),
    )
    rows = [
        {**row, "predicates": [{**p, "tags": only_predicate(p["tags"])} for p in row["predicates"]]}
        for row in roles(2, 8)
    ]
    path = write_roles(place / "unlike.jsonl", rows)
    assert main([*flags(place, "unlike", "--epochs=8"), f"--test={path}"]) == 0
    assert losses == ["negative log-likelihood per predicate"]
    page = (place / "unlike" / "report.md").read_text("utf-8")
    assert "4 of 4 test predicates have an error" in page
    assert page.count("  predicate: sat (word 2)") == page.count("  predicate: ran (word 4)") == 2
    assert "<h1>Wrong arguments</h1>" in (place / "unlike" / "errors.html").read_text("utf-8")


def test_test_roles_do_not_influence_the_head(place: Path, tmp_path: Path) -> None:
    rows = [
        {**row, "predicates": [{**p, "tags": only_predicate(p["tags"])} for p in row["predicates"]]}
        for row in roles(20, 3)
    ]
    path = write_roles(tmp_path / "other.jsonl", rows)
    more = ["--mix=trainable,top", "--epochs=2"]  # the selection does not depend on them either
    main(flags(place, "with", *more))
    main(flags(place, "without", *more, f"--test={path}"))
    heads = [(place / name / "head.safetensors").read_bytes() for name in ("with", "without")]
    assert heads[0] == heads[1]


def only_predicate(tags: list[str]) -> list[str]:
    return [tag if tag == "B-V" else "O" for tag in tags]


def test_predicts_frames_with_offsets(place: Path) -> None:
    labeler = RoleLabeler.from_pretrained(place / "report")
    (frames, none) = labeler.predict(["cat  sat mat ran on", "the mat"])
    assert [(f.predicate.text, f.predicate.start) for f in frames] == [("sat", 5), ("ran", 13)]
    assert [[(a.type, a.text, a.start) for a in f.arguments] for f in frames] == [
        [("ARG0", "cat", 0)],
        [("ARG0", "mat", 9)],
    ]
    assert none == []
    assert labeler.predict(iter(["cat  sat mat ran on", "the mat"])) == [frames, none]
    tags = labeler.predict_words([["cat", "sat", "mat", "ran", "on"]] * 2, [1, 3])
    assert tags == [f.tags for f in frames]
    sentence = ["cat", "sat", "mat", "ran", "on"]
    assert labeler.predict_words(iter([sentence, sentence]), iter([[1, 3], []])) == [tags, []]
    assert labeler.predict_words([], []) == []
    with pytest.raises(CorpusError, match="sentence 1 of 1 has no word 7"):
        labeler.predict_words([["a"]], [7])
    with pytest.raises(CheckpointError, match="was not trained for Tagger"):
        Tagger.from_pretrained(place / "report")


def test_predict_command_reads_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"cat sat mat ran on\n")))
    capsys.readouterr()
    predict(["--head", str(place / "report"), "--input", "-", "--output", "-"])
    record = json.loads(capsys.readouterr().out)
    assert [frame["predicate"]["text"] for frame in record["frames"]] == ["sat", "ran"]
    data = json.dumps({"text": ["cat", "sat", "mat", "ran", "on"]}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    arguments = ["--head", str(place / "report"), "--input", "-", "--output", "-"]
    predict([*arguments, "--format", "jsonl"])
    assert json.loads(capsys.readouterr().out) == record
    for name in ("a.tsv", "a.csv"):
        with pytest.raises(ConfigError, match=r"a\..sv; its name must end in \.jsonl$"):
            predict([*arguments[:-1], str(place / name)])
    with pytest.raises(ConfigError, match="standard input cannot be read as parquet"):
        predict([*arguments, "--format", "parquet"])


def test_offsets_do_not_depend_on_the_kind_of_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "  cat  sat mat ran on "
    (place / "raw.txt").write_text(f"{text}\n", "utf-8")
    (place / "raw.jsonl").write_text(json.dumps({"text": text}), "utf-8")
    (place / "words.jsonl").write_text(json.dumps({"text": text.split()}), "utf-8")
    frames = []
    for name in ("raw.txt", "raw.jsonl", "-", "words.jsonl"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        path = name if name == "-" else str(place / name)
        capsys.readouterr()
        predict(["--head", str(place / "report"), "--input", path, "--output", "-"])
        frames.append(json.loads(capsys.readouterr().out)["frames"])
    assert frames[0] == frames[1] == frames[2]
    assert [frame["predicate"]["start"] for frame in frames[0]] == [7, 15]
    assert [frame["predicate"]["start"] for frame in frames[3]] == [4, 12]
    assert [frame["tags"] for frame in frames[0]] == [frame["tags"] for frame in frames[3]]


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr(Embedder, "stream", fail)
    assert main(flags(place, "again", "--no-crf", "--epochs=1")) == 0


def test_overfits_20_examples(place: Path) -> None:
    path = write_roles(place / "few.jsonl", roles(10, 9))
    files = [f"--{name}={path}" for name in ("train", "validation", "test")]
    more = ["--epochs=40", "--patience=40", "--batch-size=5"]
    assert main([*flags(place, "few", *more), *files]) == 0
    assert results(place, "few")["outcomes"][0]["scores"]["train"]["f1"] == 1.0
