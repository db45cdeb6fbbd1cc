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
    kinds = ("english_small", "untrained", "glove")
    parser.add_argument("--kind", choices=kinds, required=True)
    parser.add_argument("--model", type=Path, help="model directory of the biLM")
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
    elif arguments.kind == "english_small":
        training = _trained(arguments.model)
        tree = {"kind": "bilm", "model": str(arguments.model.resolve())}
    else:
        training = {"seed": arguments.seed}
        model = _untrained(arguments.model, arguments.output, arguments.seed)
        tree = {"kind": "bilm", "model": str(model.resolve())}
    tree |= {"training": training, "versions": {"bilm": version("bilm")}}
    write_text(arguments.output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


def _trained(model: Path) -> dict[str, Any]:
    from bilm.pretrained.model_directory import PretrainedBiLm

    return {"parameters": sum(p.numel() for p in PretrainedBiLm.open(model).model.parameters())}


def _untrained(model: Path, output: Path, seed: int) -> Path:
    from downstream.baselines.untrained import save_untrained

    directory = output / "model"
    if not directory.exists():
        save_untrained(model, directory, seed)
    return directory


if __name__ == "__main__":
    run_command(main)
