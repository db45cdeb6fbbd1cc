"""Train a biLM for a fixed time with `launch/pretrain.py` and the settings of `english-small`.

A short run measures the speed. The number of steps, the warm-up and the decay then fit into the
time. An interrupted run resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from bilm.errors import CheckpointError, ConfigError, run_command
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from experiments.comparison.bilm_run import training_of
from experiments.comparison.features import SYSTEM_FILE
from experiments.english_model import CONFIG, PRECISION

SPEED_STEPS = 120

EVALUATIONS = 10

TRAINING_SHARE = 0.95  # of the time; evaluations and checkpoints take the rest

EVALUATED_WORDS = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and write the run, its learning curve and `system.json`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.bilm_training")
    parser.add_argument("--corpus", type=Path, required=True, help="directory of the corpus")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="training time")
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0:
        raise ConfigError(f"--minutes is {arguments.minutes}; it must be above 0")
    output: Path = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    steps = _num_steps(arguments.corpus, output, 60 * arguments.minutes)
    _pretrain(arguments.corpus, output / "run", steps, steps // EVALUATIONS)
    training = training_of(output / "run", output / "curve.jsonl")
    model = output / "run" / "best"
    training["parameters"] = _num_parameters(model)
    versions = {name: version(name) for name in ("bilm", "torch", "deepspeed")}
    tree = {"kind": "bilm", "model": str(model.resolve()), "training": training}
    text = json.dumps({**tree, "versions": versions}, indent=1)
    write_text(output / SYSTEM_FILE, text + "\n")
    print(text)
    return 0


def _num_steps(corpus: Path, output: Path, seconds: float) -> int:
    """Return the number of steps that an earlier start has chosen, or measure the speed."""
    plan = output / "plan.json"
    if not plan.is_file():
        _pretrain(corpus, output / "speed", SPEED_STEPS, SPEED_STEPS)
        config = read_json(output / "speed" / "config.json", CheckpointError)
        per_step = config["deepspeed"]["train_batch_size"] * config["data"]["unroll_steps"]
        lines = (output / "speed" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        speeds = [json.loads(line).get("words_per_second") for line in lines]
        speed = float([value for value in speeds if value][-1])
        steps = int(TRAINING_SHARE * seconds * speed / per_step)
        write_text(plan, json.dumps({"steps": steps, "words_per_second": speed}) + "\n")
    return int(read_json(plan, CheckpointError)["steps"])


def _pretrain(corpus: Path, run: Path, steps: int, evaluate_every: int) -> None:
    command = [str(Path(sys.executable).with_name("deepspeed")), "--quiet", "--num_gpus", "1"]
    command += ["launch/pretrain.py", "--config", CONFIG, f"data.corpus={corpus}", PRECISION]
    command += [f"train.output_dir={run}", f"train.max_steps={steps}"]
    command += [f"train.optimizer.warmup_steps={steps // 10}", "train.log.every_steps=40"]
    command += [f"train.evaluation.every_steps={evaluate_every}"]
    command += [f"train.evaluation.max_words={EVALUATED_WORDS}"]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise CheckpointError(f"launch/pretrain.py exited with {done.returncode}; see its messages")


def _num_parameters(model: Path) -> int:
    from bilm.pretrained.model_directory import PretrainedBiLm

    return sum(p.numel() for p in PretrainedBiLm.open(model).model.parameters())


if __name__ == "__main__":
    run_command(main)
