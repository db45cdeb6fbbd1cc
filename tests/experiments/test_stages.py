from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import CorpusError
from experiments.stages import Stages

APPEND = "import sys; open(sys.argv[1], 'a').write('once '); print('said')"


def test_a_stage_is_run_once_and_its_cost_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    first = Stages(tmp_path).run("a", "python", "-c", APPEND, file)
    assert first.output == "said\n"
    assert first.seconds > 0
    assert 0.001 < first.peak_memory_gib < 1
    assert Stages(tmp_path).run("a", "python", "-c", APPEND, file) == first
    assert file.read_text() == "once "
    # Another command under the same name is another stage.
    Stages(tmp_path).run("a", "python", "-c", APPEND, tmp_path / "other")
    assert (tmp_path / "other").read_text() == "once "


def test_a_stage_is_run_again_when_its_configuration_has_changed(tmp_path: Path) -> None:
    file, config = tmp_path / "file", tmp_path / "a.json"
    for content, runs in (("{}", 1), ("{}", 1), ("[]", 2)):
        config.write_text(content)
        Stages(tmp_path).run("a", "python", "-c", APPEND, file, config)
        assert file.read_text() == "once " * runs


def test_a_stage_that_fails_is_told_with_its_end_and_tried_again(tmp_path: Path) -> None:
    code = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"
    for _ in range(2):
        with pytest.raises(CorpusError, match=r"stage a ended with 3(.|\n)*the reason"):
            Stages(tmp_path).run("a", "python", "-c", code)
