"""Write the `system.json` of systems that are not trained here: biLMs and GloVe."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError, run_command
from bilm.files.writing import write_text
from experiments.comparison.features import SYSTEM_FILE

GLOVE_WORDS = 6_000_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Write the system directory."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.other_systems")
    parser.add_argument("--kind", choices=("bilm", "untrained", "glove"), required=True)
    parser.add_argument("--model", type=Path, help="model directory of the biLM")
    parser.add_argument("--run", type=Path, help="output directory of its training")
    parser.add_argument("--vectors", type=Path, help="the file of GloVe")
    parser.add_argument("--seed", type=int, default=0, help="of the untrained biLM")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    needed = "vectors" if arguments.kind == "glove" else "model"
    if getattr(arguments, needed) is None:
        raise ConfigError(f"--kind {arguments.kind} needs --{needed}")
    arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.kind == "glove":
        training: dict[str, Any] = {"words": GLOVE_WORDS}
        tree: dict[str, Any] = {"kind": "glove", "vectors": str(arguments.vectors.resolve())}
    elif arguments.kind == "bilm":
        training = _trained(arguments.model, arguments.run, arguments.output)
        tree = {"kind": "bilm", "model": str(arguments.model.resolve())}
    else:
        training = {"seed": arguments.seed}
        model = _untrained(arguments.model, arguments.output, arguments.seed)
        tree = {"kind": "bilm", "model": str(model.resolve())}
    tree |= {"training": training, "versions": {"bilm": version("bilm")}}
    write_text(arguments.output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


def _trained(model: Path, run: Path | None, output: Path) -> dict[str, Any]:
    from bilm.pretrained.model_directory import PretrainedBiLm
    from experiments.comparison.bilm_run import training_of

    weights = sum(p.numel() for p in PretrainedBiLm.open(model).model.parameters())
    training: dict[str, Any] = {"parameters": weights}
    if run is not None:
        training |= training_of(run, output / "curve.jsonl")
    return training


def _untrained(model: Path, output: Path, seed: int) -> Path:
    from downstream.baselines.untrained import save_untrained

    directory = output / "model"
    if not directory.exists():
        save_untrained(model, directory, seed)
    return directory


if __name__ == "__main__":
    run_command(main)
