"""Install the wheel with each extra alone, from the package index: `make wheel`.

In each new environment, the commands of the extra and those without an extra must work, and the
commands of the other extras must report the missing one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from tests.conftest import ROOT
from tests.packaging.cases import WITH_CLUSTER, WITH_EXTRA, WITHOUT_EXTRAS, write_files
from tests.packaging.environments import Environment

EXTRAS = (*WITH_EXTRA, *WITH_CLUSTER)


def main() -> int:
    """Install the wheel in the given directory with each extra, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of the wheel")
    parser.add_argument("--extras", default=",".join(["", *EXTRAS]), help="extras to check")
    arguments = parser.parse_args()
    (wheel,) = arguments.directory.glob("bilm-*.whl")
    failures = 0
    for extra in arguments.extras.split(","):
        with tempfile.TemporaryDirectory(prefix="bilm-") as directory:
            failures += check_extra(Path(directory), wheel.resolve(), extra)
    return 1 if failures else 0


def check_extra(directory: Path, wheel: Path, extra: str) -> int:
    """Install and run everything; return the number of commands that did not do as expected."""
    started = time.monotonic()
    environment = install(directory, wheel, extra)
    seconds = time.monotonic() - started
    write_files(environment.work)
    failed = [line for line in WITHOUT_EXTRAS if not succeeds(environment, line)]
    for other, lines in WITH_EXTRA.items():
        check = succeeds if other == extra else reports_missing
        failed += [line for line in lines if not check(environment, line)]
    missing = [line for other, lines in WITH_CLUSTER.items() if other != extra for line in lines]
    failed += [line for line in missing if not reports_missing(environment, line)]
    size = sum(file.stat().st_size for file in environment.packages.rglob("*") if file.is_file())
    num_lines = len(WITHOUT_EXTRAS) + sum(map(len, WITH_EXTRA.values())) + len(missing)
    print(
        f"bilm[{extra}]: installed in {seconds:.0f} s, {size / 2**20:,.0f} MiB; "
        f"{num_lines - len(failed)} of {num_lines} commands as expected",
        flush=True,
    )
    return len(failed)


def install(directory: Path, wheel: Path, extra: str) -> Environment:
    """Install torch, whose build determines other packages, and then the wheel."""
    venv.create(directory / "venv", symlinks=True, with_pip=True)
    environment = Environment(directory / "venv", directory / "work")
    environment.work.mkdir()
    pip = [environment.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for package in ("torch", f"bilm[{extra}] @ {wheel.as_uri()}"):
        command = [*pip, "--constraint", str(ROOT / "constraints.txt"), package]
        subprocess.run(command, check=True)
    return environment


def succeeds(environment: Environment, line: str) -> bool:
    """Run a command and return whether its exit code is 0."""
    done = environment.run("bilm", *line.split())
    if done.returncode:
        print(f"bilm {line}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
    return done.returncode == 0


def reports_missing(environment: Environment, line: str) -> bool:
    """Run a command and return whether it reports a missing extra."""
    done = environment.run("bilm", *line.split())
    is_reported = done.returncode == 2 and "install it with pip install 'bilm[" in done.stderr
    if not is_reported:
        print(f"bilm {line}: exit code {done.returncode}\n{done.stderr[-2000:]}", file=sys.stderr)
    return is_reported


if __name__ == "__main__":
    raise SystemExit(main())
