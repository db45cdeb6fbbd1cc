"""Features, heads, estimators and analyses on the second device.

Results equal those of the CPU: vectors to 1e-6, and predictions of trained heads to 1e-3, because
rounding differences grow over the steps of training. The dropout masks of the second device are
those of the CPU, unlike those of a real accelerator.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bilm.errors import ConfigError
from downstream.analyses import neighbours, probe
from downstream.classifier import TextClassifier
from downstream.classify import main as classify
from downstream.estimators import BiLmClassifier, BiLmVectorizer
from downstream.features.batches import Examples, FeatureShape, WordTexts
from downstream.heads.text_model import TextModel
from downstream.predict import main as predict
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.training.fit import fit
from tests.downstream.topic_task import head_flags, make_place, topic_texts
from tests.second_device.device import counting, second_device

HEAD_TOLERANCE = 1e-3
LABELS, TEXTS = zip(*topic_texts(60, 3), strict=True)


@pytest.fixture
def device() -> str:
    return second_device()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_place(tmp_path)


@pytest.mark.parametrize("head", ["mean_max", "attention", "bilstm", "gru"])
def test_classifier_of_one_device_runs_on_another(device: str, place: Path, head: str) -> None:
    probabilities = {}
    for name in ("cpu", device):
        flags = ["--head", head, "--device", name, "--vectors", str(place / "vectors.txt")]
        with counting() as counts:
            assert classify(head_flags(place, f"{name}-report", *flags)) == 0
        assert (counts.num_operators > 0) == (name == device)
        for other in ("cpu", device):
            classifier = TextClassifier.from_pretrained(place / f"{name}-report", device=other)
            probabilities[name, other] = classifier.predict_proba(TEXTS)
    expected = probabilities["cpu", "cpu"]
    np.testing.assert_allclose(probabilities["cpu", device], expected, atol=1e-5)
    for other in ("cpu", device):
        ours = probabilities[device, other]
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, expected, atol=HEAD_TOLERANCE)


@pytest.mark.parametrize("mix", ["learned", "frozen", "top"])
def test_mixes(device: str, place: Path, mix: str) -> None:
    assert classify(head_flags(place, "report", "--mix", mix, "--layer-norm")) == 0


def test_predicts(device: str, place: Path) -> None:
    assert classify(head_flags(place, "report")) == 0
    texts = place / "test.csv"
    outputs = {}
    for name in ("cpu", device):
        output = place / f"{name}.csv"
        flags = ["--classifier", str(place / "report"), "--input", str(texts), "--device", name]
        flags.append("--overwrite")
        assert predict([*flags, "--output", str(output)]) == 0
        outputs[name] = np.loadtxt(output, delimiter=",", skiprows=1, usecols=range(1, 5))
    np.testing.assert_allclose(outputs[device], outputs["cpu"], atol=1e-5)


def test_copies_each_batch_once(device: str) -> None:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((4, 3, 8)).astype(np.float32) for _ in range(32)]
    examples = Examples(WordTexts(layers, None), np.arange(32) % 2)
    tree = {"head": {"kind": "attention"}, "train": {"epochs": 1, "batch_size": 8}}
    settings = HeadTraining.model_validate(tree)
    model = TextModel(
        MixKind.parse("trainable"), settings.mix, settings.head, FeatureShape(3, 8), num_classes=2
    ).to(device)
    with counting() as counts:
        fit(model, examples, examples, settings, 0)
    # 4 batches of layers, mask and labels, then one of layers and mask for the validation
    assert counts.operators["copy to device"] == 4 * 3 + 2
    assert "copy to device" not in counts.synchronizations
    # losses and counts of the epoch, predictions, shares
    assert sum(counts.synchronizations.values()) <= 8


def test_estimators(device: str, place: Path) -> None:
    vectors, probabilities = {}, {}
    for name in ("cpu", device):
        vectorizer = BiLmVectorizer(place / "model", device=name).fit(TEXTS)
        vectors[name] = vectorizer.transform(TEXTS)
        before = torch.get_rng_state()
        classifier = BiLmClassifier(place / "model", epochs=3, device=name).fit(TEXTS, LABELS)
        assert torch.equal(torch.get_rng_state(), before)
        restored = pickle.loads(pickle.dumps(classifier)).set_params(device="cpu")
        probabilities[name] = classifier.predict_proba(TEXTS)
        np.testing.assert_allclose(restored.predict_proba(TEXTS), probabilities[name], atol=1e-5)
        assert {weight.device.type for weight in classifier.head_.parameters()} == {"cpu"}
    np.testing.assert_allclose(vectors[device], vectors["cpu"], atol=1e-6)
    np.testing.assert_allclose(probabilities[device], probabilities["cpu"], atol=HEAD_TOLERANCE)


def test_precision_has_its_own_cache(device: str, place: Path) -> None:
    assert classify(head_flags(place, "exact")) == 0
    exact = set((place / "cache").iterdir())
    assert classify(head_flags(place, "rounded", "--precision", "bfloat16")) == 0
    assert len(set((place / "cache").iterdir())) == 2 * len(exact)
    rounded = TextClassifier.from_pretrained(place / "rounded", precision="bfloat16")
    exact_vectors = TextClassifier.from_pretrained(place / "rounded")
    np.testing.assert_allclose(
        rounded.predict_proba(TEXTS), exact_vectors.predict_proba(TEXTS), atol=0.1
    )


def test_probe_and_neighbours(device: str, place: Path) -> None:
    rest = "\t_" * 6
    lines = [f"1\ta\t_\tDET{rest}", f"2\tbank\t_\tNOUN{rest}"]
    (place / "words.conllu").write_text(("\n".join(lines) + "\n\n") * 8)
    (place / "lines.txt").write_text("\n".join(TEXTS))
    commands: dict[Callable[[list[str]], int], list[str]] = {
        probe.main: ["--train", str(place / "words.conllu"), "--test", str(place / "words.conllu")],
        neighbours.main: ["--text", str(place / "lines.txt"), "--word", "bank"],
    }
    for i, (main, flags) in enumerate(commands.items()):
        with counting() as counts:
            output = ["--output", str(place / f"page{i}"), "--device", device]
            assert main(["--model", str(place / "model"), *flags, *output]) == 0
        assert counts.num_operators > 0


def test_rejects_device_that_does_not_exist(device: str, place: Path) -> None:
    with pytest.raises(ConfigError, match=f"the device is 'cuda'.*cpu, {device}:0"):
        classify(head_flags(place, "report", "--device", "cuda"))
