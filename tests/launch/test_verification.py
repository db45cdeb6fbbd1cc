from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from bilm.corpus.verified_files import RECORD_FILE, entry_of
from bilm.files.mapping import stamp
from tests.launch.launching import build_demo_corpus, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]


def settle(corpus: Path) -> None:
    """Wait until all files are old enough to be recorded."""
    newest = max(path.stat().st_ctime for path in corpus.iterdir())
    while time.time() < newest + 2.1:
        time.sleep(0.1)


def test_only_the_first_start_hashes_the_corpus(tmp_path: Path) -> None:
    corpus, output = build_demo_corpus(tmp_path), tmp_path / "x" / "run"
    settle(corpus)
    for steps, is_hashed in ((1, True), (2, False)):
        done = launch(corpus, output, f"train.max_steps={steps}", ranks=None)
        assert ("MB of the corpus" in done.stderr) == is_hashed, done.stderr
    shard = corpus / "train-00000.tar"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    record = json.loads((corpus / RECORD_FILE).read_text())
    now = stamp(shard)
    assert now is not None
    record["files"][shard.name] = entry_of(now)  # as if the system did not know of the change
    (corpus / RECORD_FILE).write_text(json.dumps(record))
    done = launch(corpus, output, "--verify", ranks=None, code=2)
    assert f"{shard.name} is damaged" in done.stderr
    done = launch(corpus, output, ranks=None, code=2)  # the record no longer lists the shard
    assert f"{shard.name} is damaged" in done.stderr
