"""Run `bilm.commands.export` as a script, for launchers that need a path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.commands.export import run

if __name__ == "__main__":
    run()
