"""`bilm.commands.convert` as a script, for launchers that take a path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.commands.convert import main
from bilm.errors import run_command

if __name__ == "__main__":
    run_command(main)
