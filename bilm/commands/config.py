"""Check a configuration: `bilm config big [section.key=value ...]`

Prints the configuration with all defaults filled in.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bilm.errors import run_command
from bilm.training.config import load_config


def main() -> int:
    """Check a configuration and print it with all defaults filled in."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="configuration file, or the name of a shipped one")
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_args()
    print(load_config(arguments.file, arguments.override).model_dump_json(indent=2))
    return 0


if __name__ == "__main__":
    run_command(main)
