"""Launch a tiny run, and read its results."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file

from bilm.training.checkpoints import MANIFEST_FILE
from tests.conftest import ROOT

TIMEOUT_SECONDS = 500  # generous, for busy machines; below the limit of a test

STARTED: list[subprocess.Popen[bytes]] = []  # by `start`, since the last `end_started`

TINY: dict[str, Any] = {
    "model": {
        "characters": {"embedding_dim": 4, "filters": [[1, 8], [2, 8], [3, 16]], "num_highway": 1},
        "lstm": {"dim": 32, "projection_dim": 16, "num_layers": 2},
        "softmax": {"num_negatives": 50},
        "dropout": 0.2,  # the masks must not depend on ranks, and must be restored
    },
    "data": {"corpus": "", "unroll_steps": 6},
    "train": {
        "output_dir": "",
        "num_epochs": 100,
        "max_steps": 12,
        "evaluation": {"every_steps": 6, "rows": 4},
        "checkpoints": {"every_steps": 4},
        "log": {"every_steps": 1, "histograms_every_steps": 5},
        "timeout_seconds": 60,
    },
    "deepspeed": {"train_batch_size": 8},
}


def build_demo_corpus(directory: Path, sentences: int = 600) -> Path:
    """Generate text and build a corpus from it, with the real commands."""
    text = directory / "text"
    for command in (
        ["data_tools.generate_demo", "--output", str(text), "--sentences", str(sentences)],
        [
            "data_tools.build_corpus",
            f"--input={text / 'train.txt'}",
            f"--heldout={text / 'heldout.txt'}",
            "--tokenizer=whitespace",
            "--workers=1",
            "--min-count=1",
            f"--output={directory / 'corpus'}",
        ],
    ):
        subprocess.run([sys.executable, "-m", *command], check=True, cwd=ROOT, capture_output=True)
    return directory / "corpus"


def command_for(corpus: Path, output: Path, *overrides: str, ranks: int | None = 1) -> list[str]:
    """Return the command line of a tiny run; `ranks=None` omits the deepspeed launcher."""
    config = output.parent / "tiny.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(TINY), encoding="utf-8")
    script = [
        str(ROOT / "launch" / "pretrain.py"),
        f"--config={config}",
        f"data.corpus={corpus}",
        f"train.output_dir={output}",
        *overrides,
    ]
    return [sys.executable, *script] if ranks is None else [*deepspeed(ranks), *script]


def deepspeed(ranks: int) -> list[str]:
    """Return the command line of the launcher, with a free port."""
    program = str(Path(sys.executable).parent / "deepspeed")
    return [program, f"--num_gpus={ranks}", f"--master_port={free_port()}"]


def environment() -> dict[str, str]:
    """Return the environment of a launch: one thread per rank, and packages of this checkout."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def launch(
    corpus: Path, output: Path, *overrides: str, ranks: int | None = 1, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run to the end and check the exit code."""
    done = subprocess.run(
        command_for(corpus, output, *overrides, ranks=ranks),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-6000:]
    return done


def start(
    corpus: Path,
    output: Path,
    *overrides: str,
    ranks: int = 1,
    extra: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start in the background, in a new process group, with `extra` environment variables."""
    output.parent.mkdir(parents=True, exist_ok=True)
    log = open(output.with_suffix(".log"), "ab")  # noqa: SIM115
    process = subprocess.Popen(
        command_for(corpus, output, *overrides, ranks=ranks),
        stdout=log,
        stderr=log,
        env=environment() | (extra or {}),
        cwd=ROOT,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def end_started() -> None:
    """Kill what a failed test has left running, so that it does not slow the next tests down."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            for one in tree_of(process):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()


def tree_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the outer process and all of its descendants."""
    outer = psutil.Process(process.pid)
    return [outer, *outer.children(recursive=True)]


def ranks_of(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that train and have not exited, in the order of their ranks."""
    ranks = []
    for process in processes:
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if any(part.startswith("--local_rank=") for part in line) and "-m" not in line:
            ranks.append((line, process))
    return [process for _, process in sorted(ranks, key=lambda item: item[0])]


def wait_for_step(output: Path, step: int) -> None:
    """Wait until metrics.jsonl has the line of `step`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if any(line["step"] >= step for line in events(output, "train")):
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} was not reached within {TIMEOUT_SECONDS} s")


def wait_gone(processes: list[psutil.Process]) -> None:
    """Wait until all processes have exited; kill those that have not, and fail."""
    _, alive = psutil.wait_procs(processes, timeout=60)
    names = [p.cmdline() for p in alive]
    for process in alive:
        process.kill()
    assert not names


def events(output: Path, kind: str) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl with this event."""
    path = output / "metrics.jsonl"
    if not path.exists():
        return []
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue  # it is being written
    return [line for line in lines if line["event"] == kind]


def losses(output: Path) -> list[tuple[float, ...]]:
    """Return the losses of every step, each of which must be logged once."""
    lines = events(output, "train")
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    return [tuple(line[k] for k in line if k.startswith("loss_")) for line in lines]


def final_tensors(output: Path, step: int) -> dict[str, torch.Tensor]:
    """Return all tensors in the checkpoint of `step`."""
    directory = output / "checkpoints" / f"step-{step:08d}"
    return {
        f"{file.stem}/{name}": tensor
        for file in sorted(directory.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def assert_same_run(first: Path, second: Path, step: int, tolerance: float = 0.0) -> None:
    """Check that both runs have the same losses at each step, and the same final checkpoint."""
    one_curve, other_curve = losses(first), losses(second)
    assert len(one_curve) == len(other_curve) == step
    difference = max(
        abs(a - b)
        for x, y in zip(one_curve, other_curve, strict=True)
        for a, b in zip(x, y, strict=True)
    )
    assert difference <= tolerance, f"losses differ by {difference}"
    one, other = final_tensors(first, step), final_tensors(second, step)
    assert one.keys() == other.keys()
    for name in one:
        difference = (one[name] - other[name]).abs().max().item()
        assert difference <= tolerance, f"{name} differs by {difference}"


def sign(checkpoint: Path) -> None:
    """Write a manifest of a checkpoint that matches its files."""
    files = {
        file.name: {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in sorted(checkpoint.iterdir())
        if file.name != MANIFEST_FILE
    }
    text = json.dumps({"files": files}, indent=1) + "\n"
    (checkpoint / MANIFEST_FILE).write_text(text, encoding="utf-8")


def free_port() -> int:
    """Return a TCP port that is free at the moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
