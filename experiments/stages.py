"""Stages of an experiment: commands that run once, and whose output and cost are recorded.

If the experiment is killed, the system ends its commands too (on Linux), so that a second run of
the experiment is not disturbed by them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bilm.distributed.process import die_with_parent, peak_memory_bytes
from bilm.errors import ConfigError, CorpusError
from bilm.files.reading import sha256_of
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text


@dataclass(frozen=True)
class Done:
    """The record of a stage that has finished."""

    name: str
    command: list[str]
    seconds: float
    peak_memory_gib: float  # of its largest process
    output: str  # on stdout
    configs: dict[str, str]  # the sha256 of each .json file that the command names
    processor_seconds: float | None = None  # None in records of earlier versions


class Stages:
    """Runs commands, each at most once, and records them below `work`."""

    def __init__(self, work: Path) -> None:
        self._directory = work / "stages"
        self._directory.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, command: Sequence[str]) -> Done:
        """Run a command, unless the stage has finished with the same command and configs."""
        words = list(command)
        configs = {w: sha256_of(Path(w), ConfigError) for w in words if w.endswith(".json")}
        path = self._directory / f"{name}.json"
        if path.is_file():
            done = Done(**read_json(path, CorpusError))
            if (done.command, done.configs) == (words, configs):
                print(f"{name}: already done", flush=True)
                return done
        print(f"{name}: {' '.join(words)}", flush=True)
        log = self._directory / f"{name}.log"
        start = time.monotonic()
        with log.open("ab") as errors:
            process = subprocess.Popen(
                _executable(words),
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                preexec_fn=partial(die_with_parent, signal.SIGTERM),
            )
            assert process.stdout is not None
            output = process.stdout.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        process.returncode = code
        seconds = time.monotonic() - start
        if code != 0:
            last = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise CorpusError(f"stage {name} exited with {code}; {log} ends with:\n{last}")
        processor = usage.ru_utime + usage.ru_stime
        memory = peak_memory_bytes(usage) / 2**30
        done = Done(name, words, seconds, memory, output, configs, processor)
        write_text(path, json.dumps(asdict(done), indent=1) + "\n")
        print(f"{name}: {seconds:.0f} s, {done.peak_memory_gib:.2f} GiB", flush=True)
        return done


def _executable(words: list[str]) -> list[str]:
    """Return the command with `python` or `deepspeed` of this environment, not of the shell."""
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    return [str(Path(sys.executable).with_name(words[0])), *words[1:]]


def _environment() -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path}
