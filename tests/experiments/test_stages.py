from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from bilm.distributed.process import peak_memory_bytes
from bilm.errors import CorpusError
from experiments.stages import Stages
from tests.chaos.jobs import still_running
from tests.cluster.machines import wait_until

APPEND = "import sys; open(sys.argv[1], 'a').write('once '); print('output')"


def command(*arguments: Path) -> list[str]:
    return ["python", "-c", APPEND, *map(str, arguments)]


def test_stage_runs_once_and_records_its_cost(tmp_path: Path) -> None:
    file = tmp_path / "file"
    first = Stages(tmp_path).run("a", command(file))
    assert first.output == "output\n"
    assert first.seconds > 0
    # Until a new process runs its program, Linux counts the memory of its parent for it.
    own_memory_gib = peak_memory_bytes() / 2**30
    assert 0.001 < first.peak_memory_gib < 1 + own_memory_gib
    assert Stages(tmp_path).run("a", command(file)) == first
    assert file.read_text() == "once "


def test_stage_runs_again_if_its_command_changes(tmp_path: Path) -> None:
    for name in ("file", "other"):
        Stages(tmp_path).run("a", command(tmp_path / name))
        assert (tmp_path / name).read_text() == "once "


def test_stage_runs_again_if_its_configuration_changes(tmp_path: Path) -> None:
    file, config = tmp_path / "file", tmp_path / "a.json"
    for content, runs in (("{}", 1), ("{}", 1), ("[]", 2)):
        config.write_text(content)
        Stages(tmp_path).run("a", command(file, config))
        assert file.read_text() == "once " * runs


def test_failed_stage_reports_its_log_and_is_not_recorded(tmp_path: Path) -> None:
    code = "import sys; print('the reason', file=sys.stderr); sys.exit(3)"
    for _ in range(2):
        with pytest.raises(CorpusError, match=r"stage a exited with 3(.|\n)*the reason"):
            Stages(tmp_path).run("a", ["python", "-c", code])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals orphans")
def test_killed_experiment_ends_its_commands(tmp_path: Path) -> None:
    wait = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
    code = (
        "import sys; from pathlib import Path; from experiments.stages import Stages; "
        "Stages(Path(sys.argv[1])).run('a', ['python', '-c', sys.argv[2]])"
    )
    log = tmp_path / "stages" / "a.log"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path), wait]) as experiment:
        wait_until(lambda: log.is_file() and "\n" in log.read_text(), 120, "the command")
        command = psutil.Process(int(log.read_text()))
        experiment.send_signal(signal.SIGTERM)
        wait_until(lambda: not still_running([command]), 60, "the end of the command")
