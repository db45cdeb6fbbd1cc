"""Run the training command in forks of one process that has imported PyTorch and DeepSpeed.

A launch with two ranks imports both packages in four processes, which takes most of its time. Tests
of launchers, signals, memory and the start of a process use `launching.launch`; tests of what a run
computes use `train_forked`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.launch.launching import TIMEOUT_SECONDS, command_for, environment, free_port

_servers: list[subprocess.Popen[str]] = []  # at most one; it exits when this process does


def train_forked(
    corpus: Path, output: Path, *overrides: str, ranks: int = 1, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run to the end and check the exit code of every rank."""
    _, *arguments = command_for(corpus, output, *overrides, ranks=None)
    logs = [output.parent / f"{output.name}.{name}" for name in ("out", "err")]
    for log in logs:
        log.write_text("")
    request = {"arguments": arguments, "ranks": ranks, "logs": [str(log) for log in logs]}
    codes = _ask(request | {"environment": environment()})
    printed, errors = (log.read_text(encoding="utf-8") for log in logs)
    assert codes == [code] * ranks, f"{codes}\n{printed[-3000:]}{errors[-6000:]}"
    return subprocess.CompletedProcess(arguments, code, printed, errors)


def _ask(request: dict[str, Any]) -> list[int]:
    """Return the exit codes of the ranks that the prepared process has run."""
    if not _servers:
        command = [sys.executable, "-m", "tests.launch.forking"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environ = environment() | {"DS_ACCELERATOR": "cpu"}
        _servers.append(subprocess.Popen(command, **pipes, env=environ, cwd=ROOT))
    server = _servers[0]
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        print(json.dumps(request), file=server.stdin, flush=True)
        codes: list[int] = json.loads(server.stdout.readline())
    except BaseException:  # such as the timeout of a test
        _servers.pop().kill()
        raise
    return codes


def _train_rank(rank: int, shared: dict[str, str], request: dict[str, Any]) -> None:
    from bilm.commands.pretrain import run

    for descriptor, log in enumerate(request["logs"], start=1):
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), descriptor)
    os.environ.clear()
    os.environ.update(request["environment"] | shared)
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
    sys.argv = request["arguments"]
    run()


def _run(request: dict[str, Any]) -> list[int | None]:
    """Fork the ranks and return their exit codes; if one fails, the others are killed."""
    shared = {"WORLD_SIZE": str(request["ranks"]), "LOCAL_SIZE": str(request["ranks"])}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=_train_rank, args=(rank, shared, request), daemon=True)
        for rank in range(request["ranks"])
    ]
    for rank in ranks:
        rank.start()
    while running := [rank.sentinel for rank in ranks if rank.exitcode is None]:
        if not wait(running, TIMEOUT_SECONDS) or any(rank.exitcode for rank in ranks):
            for rank in ranks:
                rank.kill()
    return [rank.exitcode for rank in ranks]


if __name__ == "__main__":
    # All that a run imports. Nothing here starts a thread, which a fork would lose.
    import deepspeed  # noqa: F401

    import bilm.training.setup  # noqa: F401

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what DeepSpeed prints is not an answer
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), file=answers, flush=True)
