"""List the models that come with bilm: `bilm models`

Each name can be used wherever a command takes `--model`, and in Python with
`bilm.Embedder.from_pretrained`. With a name, prints the card of that model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from bilm.errors import ConfigError, run_command
from bilm.pretrained.file_names import CARD_FILE
from bilm.pretrained.named_models import MODELS, find_named_model, model_path


def main() -> int:
    """Print the names, sizes and directories of all models, or the card of one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="model whose card to print")
    name: str | None = parser.parse_args().name
    if name is None:
        for known in MODELS:
            directory = model_path(known)
            print(f"{known:<20}{_megabytes(directory):6.1f} MB  {directory}")
    elif name in MODELS:
        print((find_named_model(name) / CARD_FILE).read_text(encoding="utf-8"), end="")
    else:
        raise ConfigError(f"bilm has no model {name!r}; its models are {', '.join(MODELS)}")
    return 0


def _megabytes(directory: Path) -> float:
    return sum(file.stat().st_size for file in directory.iterdir()) / 1e6


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main)


if __name__ == "__main__":
    run()
