"""bilm/commands/config."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bilm.errors import run_command
from bilm.training.config import load_config


def main() -> int:
    """Check a configuration and print it with all defaults filled in."""
    parser = argparse.ArgumentParser(
        prog="python -m bilm.commands.config", description=main.__doc__
    )
    parser.add_argument("file", type=Path, help="a configuration, for example configs/big.json")
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_args()
    config = load_config(arguments.file, arguments.override)
    sys.stdout.write(config.model_dump_json(indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run_command(main)
