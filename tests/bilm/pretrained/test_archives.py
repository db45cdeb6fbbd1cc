from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError, ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.export import export_published
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.vocabulary import Vocabulary
from tests.bilm.embedding.golden_model import SENTENCES, golden_embedder
from tests.conftest import GOLDEN, tiny_model_config

# The files of a model of the NLPL repository. Its vocabulary is not needed, and not a valid one.
NLPL = {
    "options.json": (GOLDEN / "options.json").read_bytes(),
    "model.hdf5": (GOLDEN / "weights.hdf5").read_bytes(),
    "vocab.txt": b"<S>\n</S>\n<UNK>\n10\xc2\xa0000\n",
    "meta.json": b"{}",
    "README": b"",
}


def write_zip(path: Path, files: dict[str, bytes], folder: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(folder + name, data)
    return path


def check(path: Path) -> None:
    expected = golden_embedder().embed(SENTENCES[:2])
    found = Embedder.from_pretrained(path).embed(SENTENCES[:2])
    for array, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, other, atol=1e-6)


@pytest.mark.parametrize("folder", ["", "193/"])
def test_opens_nlpl_archive(tmp_path: Path, folder: str) -> None:
    check(write_zip(tmp_path / "193.zip", NLPL, folder))
    assert [path.name for path in tmp_path.iterdir()] == ["193.zip"]


def test_opens_unpacked_nlpl_archive(tmp_path: Path) -> None:
    for name, data in NLPL.items():
        (tmp_path / name).write_bytes(data)
    check(tmp_path)


def test_opens_archive_with_published_names(tmp_path: Path) -> None:
    files = {"weights.hdf5" if name == "model.hdf5" else name: data for name, data in NLPL.items()}
    check(write_zip(tmp_path / "a.zip", files))


def test_reads_a_vocabulary_that_is_needed(tmp_path: Path) -> None:
    words = ["</S>", "<S>", "<UNK>", "the"]
    model = BiLm(tiny_model_config(), len(words))
    export_published(PretrainedBiLm(model, Vocabulary(words)), tmp_path / "published")
    files = {path.name: path.read_bytes() for path in (tmp_path / "published").iterdir()}
    vocabulary = PretrainedBiLm.open(write_zip(tmp_path / "a.zip", files)).vocabulary
    assert vocabulary is not None
    assert vocabulary.words == tuple(words)
    files["vocab.txt"] += b"of\n"
    with pytest.raises(CheckpointError, match="has 5 words; the model of these files has 4"):
        PretrainedBiLm.open(write_zip(tmp_path / "b.zip", files))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"config.json": b"{}", "encoder.pkl": b"x"},
            "options.json and weights.hdf5 or model.hdf5",
        ),
        ({"options.json": NLPL["options.json"]}, "it has 0"),
        ({**NLPL, **{f"b/{name}": data for name, data in NLPL.items()}}, "it has 2"),
        ({**NLPL, "model.hdf5": b"x"}, r"a\.zip: model\.hdf5 is not an HDF5 file"),
        ({**NLPL, "options.json": b"{"}, r"a\.zip: .*options\.json"),
    ],
)
def test_rejects_other_archives(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    path = write_zip(tmp_path / "a.zip", files)
    with pytest.raises(CheckpointError, match=message):
        PretrainedBiLm.open(path)


def test_rejects_damaged_archives(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", NLPL)
    data = bytearray(path.read_bytes())
    for damaged in (data[:-30], b"not a zip file", data[:2000] + bytes(3000) + data[5000:]):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"cannot read .*a\.zip"):
            PretrainedBiLm.open(path)
    with pytest.raises(ConfigError, match=r"nor a directory or \.zip file with options\.json"):
        PretrainedBiLm.open(tmp_path / "missing.zip")


def test_never_writes_outside_the_temporary_directory(tmp_path: Path) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    files = {f"../{name}": data for name, data in NLPL.items()}
    check(write_zip(folder / "a.zip", files))
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "a.zip"]
