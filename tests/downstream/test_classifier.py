from __future__ import annotations

import csv
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import downstream
from bilm.embedding.embedder import Embedder, Limits
from bilm.errors import BilmError, CheckpointError, ConfigError, CorpusError, OutputError
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream import TextClassifier
from downstream.classify import main as classify
from downstream.features.texts_to_layers import pool_words, stream_words
from downstream.predict import main as predict
from downstream.predictors.loading import Places
from tests.conftest import ROOT
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv, write_vectors

TEST = order_texts(80, 2)


@pytest.fixture(scope="module", params=["mean_max", "attention", "gru"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("task")
    tiny_bilm().save_pretrained(directory / "model")
    write_csv(directory / "train.csv", order_texts(200, 1))
    write_csv(directory / "test.csv", TEST)
    write_vectors(directory / "vectors.txt")
    classify(
        [
            f"--model={directory / 'model'}",
            f"--train={directory / 'train.csv'}",
            f"--test={directory / 'test.csv'}",
            f"--output={directory / 'report'}",
            f"--vectors={directory / 'vectors.txt'}",
            f"--head={request.param}",
            "--encoder-dim=8",
            "--epochs=4",
            "--learning-rate=0.01",
        ]
    )
    return directory


def test_accuracy_equals_that_of_the_report(place: Path) -> None:
    classifier = TextClassifier.from_pretrained(place / "report")
    tree = json.loads((place / "report" / "results.json").read_text("utf-8"))
    predicted = classifier.predict(text for _, text in TEST)  # any iterable
    right = sum(label == found for (label, _), found in zip(TEST, predicted, strict=True))
    assert right / 80 == pytest.approx(tree["outcomes"][0]["scores"]["test"]["accuracy"])
    assert classifier.classes == ("down", "up")


def test_explains_a_text(place: Path) -> None:
    classifier = TextClassifier.from_pretrained(place / "report")
    text = TEST[0][1]
    (explained,) = classifier.explain([text])
    assert explained.effects is None
    np.testing.assert_allclose(
        explained.probabilities, classifier.predict_proba([text])[0], atol=1e-6
    )
    has_attention = classifier.description.head.kind == "attention"
    assert (explained.weights is not None) == has_attention
    if explained.weights is not None:
        assert len(explained.weights) == len(explained.words)
        assert sum(explained.weights) == pytest.approx(1)


def test_effects_compare_with_the_text_without_a_word(place: Path) -> None:
    classifier = TextClassifier.from_pretrained(place / "report")
    text = TEST[0][1]
    explained, single = classifier.explain([text, text.split()[0]], effects=True)
    assert explained.effects is not None
    assert len(explained.effects) == len(explained.words)
    assert single.effects is None  # without its word, nothing is left
    label = int(np.argmax(explained.probabilities))
    (layers,) = stream_words(classifier._embedder, [explained.words])
    for i, effect in enumerate(explained.effects):
        rest = explained.words[:i] + explained.words[i + 1 :]
        shorter = np.delete(layers, i, axis=0)
        if classifier.description.head.mode != "words":
            shorter = pool_words(shorter)
        (probabilities,) = classifier._outputs([rest], [shorter])
        expected = explained.probabilities[label] - probabilities[label]
        assert effect == pytest.approx(expected, abs=1e-5)


def test_invariant_probabilities_do_not_depend_on_other_texts(place: Path) -> None:
    bilm = PretrainedBiLm.open(place / "model")
    embedder = Embedder(bilm, Limits(batch_invariant=True), device="cpu")
    classifier = TextClassifier.open(place / "report", Places(embedder=embedder))
    assert classifier._embedder is embedder  # the biLM is not loaded twice
    texts = [text for _, text in TEST[:9]]
    together = classifier.explain(texts, effects=True)
    for text, expected in zip(texts, together, strict=True):
        assert classifier.explain([text], effects=True) == [expected]


def test_probabilities_do_not_depend_on_the_batch(place: Path) -> None:
    classifier = TextClassifier.from_pretrained(place / "report")
    texts = [text for _, text in TEST[:9]]
    together = classifier.predict_proba(texts)
    assert together.shape == (9, 2)
    np.testing.assert_allclose(together.sum(axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(classifier.predict_proba(texts[4:5])[0], together[4], atol=2e-3)
    assert classifier.predict_proba([]).shape == (0, 2)
    with pytest.raises(CorpusError, match="text 2 of 2 is empty"):
        classifier.predict(["a", " "])
    with pytest.raises(TypeError, match=r"pass \[text\]"):
        classifier.predict("a text")
    with pytest.raises(TypeError, match="text 1 of 1 is None; expected a text, or a list of its w"):
        classifier.explain([None])  # type: ignore[list-item]


def test_predict_writes_both_formats(place: Path) -> None:
    common = ["--classifier", str(place / "report"), "--input", str(place / "test.csv")]
    predict([*common, "--output", str(place / "out.csv")])
    predict([*common, "--output", str(place / "out.jsonl")])
    with open(place / "out.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (place / "out.jsonl").read_text("utf-8").splitlines()]
    classifier = TextClassifier.from_pretrained(place / "report")
    expected = classifier.predict([text for _, text in TEST])
    assert [row["label"] for row in rows] == expected == [line["label"] for line in lines]
    assert float(rows[3]["p(up)"]) == pytest.approx(lines[3]["probabilities"]["up"])
    with pytest.raises(ConfigError, match=r"must end in \.csv or \.jsonl"):
        predict([*common, "--output", str(place / "out.xml")])
    with pytest.raises(CorpusError, match="has no column 'body'"):
        predict([*common, "--output", str(place / "body.csv"), "--text-columns", "body"])


def test_predict_rejects_output_before_it_reads_the_classifier(place: Path) -> None:
    broken = place / "broken"
    broken.mkdir()
    (broken / "classifier.json").write_text("{}", "utf-8")
    common = ["--classifier", str(broken), "--input", str(place / "test.csv"), "--output"]
    (place / "directory.csv").mkdir()
    with pytest.raises(ConfigError, match="a directory; pass a file path"):
        predict([*common, str(place / "directory.csv")])
    with pytest.raises(OutputError, match=r"test\.csv is not a directory"):
        predict([*common, str(place / "test.csv" / "out.csv")])
    with pytest.raises(BilmError, match=r"broken/classifier\.json: \d+ errors"):
        predict([*common, str(place / "new.csv")])


def test_predict_reports_full_disk(place: Path, tmp_path: Path) -> None:
    """Simulate a full disk with a limit on file sizes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    command = [sys.executable, "-m", "downstream.predict", "--classifier", str(place / "report")]
    command += ["--input", str(place / "test.csv"), "--output", str(tmp_path / "out.csv")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    assert "error: no space left while writing" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_finds_moved_model_and_rejects_changed_model(place: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    shutil.copytree(place / "report", report)
    tree = json.loads((report / "classifier.json").read_text("utf-8"))
    tree["bilm"]["path"] = str(tmp_path / "gone")
    (report / "classifier.json").write_text(json.dumps(tree), "utf-8")
    with pytest.raises(CheckpointError, match="pass its path"):
        TextClassifier.from_pretrained(report)
    assert TextClassifier.from_pretrained(report, model=place / "model").predict(["a"])
    tiny_bilm(seed=5).save_pretrained(tmp_path / "other")
    with pytest.raises(CheckpointError, match="is not the biLM that"):
        TextClassifier.from_pretrained(report, model=tmp_path / "other")
    other = write_vectors(tmp_path / "vectors.txt", dim=3)
    with pytest.raises(CheckpointError, match="is not the file of word vectors that"):
        TextClassifier.from_pretrained(report, model=place / "model", vectors=other)


def test_rejects_damaged_files(place: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    shutil.copytree(place / "report", report)
    head = report / "head.safetensors"
    whole = head.read_bytes()
    head.write_bytes(whole[:-5])
    with pytest.raises(CheckpointError, match="not an intact safetensors file"):
        TextClassifier.from_pretrained(report)
    head.write_bytes(whole)
    tree = json.loads((report / "classifier.json").read_text("utf-8"))
    tree["classes"] = ["a", "b", "c"]
    (report / "classifier.json").write_text(json.dumps(tree), "utf-8")
    with pytest.raises(CheckpointError, match=r"does not match classifier\.json: head\.classify"):
        TextClassifier.from_pretrained(report)
    (report / "classifier.json").write_text("{}", "utf-8")
    with pytest.raises(CheckpointError, match="is missing"):
        TextClassifier.from_pretrained(report)
    with pytest.raises(BilmError, match="cannot read"):
        TextClassifier.from_pretrained(tmp_path)


def test_public_names_resolve() -> None:
    for name in downstream.__all__:
        assert getattr(downstream, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = downstream.Nothing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 10**9}, "num_layers is 1000000000"),
        ({"dim": 10**12}, "dim is 1000000000000"),
        ({"vector_dim": 1}, "vector_dim is 1, but"),
        ({"mix_kind": "os.system"}, "'os.system' is not a mix"),
        ({"seed": -1}, "seed: "),
        ({"max_words": 0}, "max_words: "),
        ({"vectors": {"path": "/dev/zero", "digest": ""}}, "/dev/zero: it is not a regular file"),
    ],
)
def test_rejects_invalid_description(
    place: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    report = tmp_path / "report"
    shutil.copytree(place / "report", report)
    tree = json.loads((report / "classifier.json").read_text("utf-8"))
    (report / "classifier.json").write_text(json.dumps({**tree, **change}), "utf-8")
    with pytest.raises(BilmError, match=message):
        TextClassifier.from_pretrained(report)


def test_does_not_allocate_an_invalid_head(place: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    shutil.copytree(place / "report", report)
    tree = json.loads((report / "classifier.json").read_text("utf-8"))
    for width, message in ((60_000, "does not match"), (1 << 40, "head.hidden_dim: input")):
        tree["head"]["hidden_dim"] = width
        (report / "classifier.json").write_text(json.dumps(tree), "utf-8")
        with pytest.raises(CheckpointError, match=message):
            TextClassifier.from_pretrained(report)
