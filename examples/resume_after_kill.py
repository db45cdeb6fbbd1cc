"""Kill a training run and resume it: `python examples/resume_after_kill.py`

Trains a tiny biLM on generated text in another process, kills that process with SIGKILL in the
middle, and runs the same command again. The run resumes from its newest checkpoint, and its losses
are the same as those of a run that was not killed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="directory for all output (default: temporary)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        show(arguments.work or Path(temporary))


def show(work: Path) -> None:
    corpus = work / "corpus"
    module("data_tools.generate_demo", "--output", str(work / "text"), "--overwrite")
    module(
        "data_tools.build_corpus",
        *("--input", str(work / "text/train.txt"), "--heldout", str(work / "text/heldout.txt")),
        *("--tokenizer", "whitespace", "--output", str(corpus), "--overwrite"),
    )
    unbroken, killed = work / "unbroken", work / "killed"
    start(corpus, unbroken).wait()

    process = start(corpus, killed)
    while len(losses(killed)) < 25:
        if process.poll() is not None:
            raise SystemExit("the run ended before it was killed")
        time.sleep(0.05)
    process.kill()
    process.wait()
    print(f"killed after {len(losses(killed))} logged steps; starting the same command again")
    start(corpus, killed).wait()

    same = losses(unbroken) == losses(killed)
    print(f"{len(losses(killed))} losses, identical to those of the unbroken run: {same}")


def module(name: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", name, *arguments], check=True)


def start(corpus: Path, run: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bilm", "pretrain", "--config", "demo"]
    command += [f"data.corpus={corpus}", f"train.output_dir={run}", "train.max_steps=60"]
    command += ["train.checkpoints.every_steps=10", "train.log.every_steps=1"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def losses(run: Path) -> list[float]:
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["loss_forward"] for event in events if event["event"] == "train"]


if __name__ == "__main__":
    main()
