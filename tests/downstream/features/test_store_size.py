from __future__ import annotations

import logging
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import OutputError
from downstream.features.store import open_stores
from downstream.features.store_format import Kind
from downstream.features.store_size import StoreSize, check_space
from tests.conftest import ROOT
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv

TEXTS = [text for _, text in order_texts(40, seed=1)]
AG_NEWS = StoreSize(num_texts=120_000, num_words=5_400_000, num_layers=3, dim=1024)


@pytest.mark.parametrize(("kind", "num_bytes"), [("pooled", 2.97e9), ("words", 33.2e9)])
def test_estimate_at_the_published_size(kind: Kind, num_bytes: float) -> None:
    assert AG_NEWS.num_bytes(kind) == pytest.approx(num_bytes, rel=0.01)


def test_estimate_is_the_size_of_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    embedder = Embedder(tiny_bilm())
    store = open_stores(tmp_path, "words", embedder, {"train": TEXTS, "test": TEXTS[:5]})["train"]
    size = StoreSize(40, len(store.word_ids), embedder.num_layers, embedder.dim)
    files = [store.directory / name for name in ("layers.bin", "offsets.bin", "words.bin")]
    assert size.num_bytes("words") == sum(file.stat().st_size for file in files)
    words = len(store.word_ids) + sum(len(text.split()) for text in TEXTS[:5])
    assert f"45 texts with {words:,} words in 3 layers of 12 numbers: 0.00 GB" in caplog.text
    assert f"in {tmp_path}; " in caplog.text
    assert "GB free" in caplog.text
    caplog.clear()
    open_stores(tmp_path, "words", embedder, {"train": TEXTS})
    assert "numbers" not in caplog.text  # nothing is written


def test_rejects_estimate_above_the_free_space(tmp_path: Path) -> None:
    huge = StoreSize(num_texts=10**12, num_words=10**14, num_layers=3, dim=1024)
    cache = tmp_path / "new" / "cache"
    with pytest.raises(
        OutputError, match=r"need [\d,]+ bytes .* bytes are free; nothing was written\. Set --cache"
    ) as error:
        check_space(cache, [(huge, ("pooled", "words"))])
    assert "--head mean_max" in str(error.value)
    assert "--max-words" in str(error.value)
    with pytest.raises(OutputError, match="fewer texts"):
        check_space(cache, [(huge, ("pooled",))])
    assert list(tmp_path.iterdir()) == []


def test_rejects_small_disk_before_the_bilm_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    embedder = Embedder(tiny_bilm())
    monkeypatch.setattr(embedder, "stream", None)
    with pytest.raises(OutputError, match="but 1,000 bytes are free"):
        open_stores(tmp_path / "cache", "words", embedder, {"train": TEXTS[:1], "test": TEXTS})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("head", ["mean_max", "bilstm"])
def test_full_disk_exits_with_2_without_traceback(tmp_path: Path, head: str) -> None:
    """Simulate a full disk with a limit on file sizes."""
    tiny_bilm().save_pretrained(tmp_path / "model")
    write_csv(tmp_path / "train.csv", order_texts(400, 1))
    write_csv(tmp_path / "test.csv", order_texts(40, 2))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    done = subprocess.run(
        [
            *(sys.executable, "-m", "downstream.classify", "--head", head, "--epochs", "1"),
            *("--model", str(tmp_path / "model"), "--train", str(tmp_path / "train.csv")),
            *("--test", str(tmp_path / "test.csv"), "--output", str(tmp_path / "report")),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        preexec_fn=limit,
    )
    assert done.returncode == 2, done.stderr
    assert "error: no space left while writing" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "representations").iterdir()) == []
    assert not (tmp_path / "report").exists()
