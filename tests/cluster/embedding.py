"""Scenarios: embedding one file on two machines."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import h5py
import numpy as np

from tests.cluster.jobs import STOP_SECONDS, Bed, Launch, finish
from tests.cluster.machines import wait_until
from tests.conftest import ROOT

LINES = 20_000


def embed(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with a hostfile over pdsh, `launch/embed.py`"""
    one, two = _reference(bed), bed.work / "embed" / "two.hdf5"
    launch = bed.start(bed.cluster.ctl, [*bed.deepspeed(), *_script(bed, two)])
    finish([launch])
    return "embedded", _compare(one, two)


def embed_killed_rank(bed: Bed) -> tuple[str, str]:
    """embedding with plain variables, rank 1 killed"""
    one, two = _reference(bed), bed.work / "embed" / "killed.hdf5"
    ranks = bed.start_ranks(_script(bed, two))
    parts = two.with_suffix(".hdf5.partial")
    wait_until(lambda: list(parts.glob("part-*")), 60, "the first part")
    _kill(ranks[1])
    finish(ranks[1:], (137,), STOP_SECONDS)
    seconds = finish(ranks[:1], (4,), STOP_SECONDS)
    finish(bed.start_ranks(_script(bed, two)))
    return f"rank 0 exited with 4 after {seconds:.1f} s; resumed on both", _compare(one, two)


def _kill(launch: Launch) -> None:
    assert launch.process is not None
    launch.process.kill()


def _reference(bed: Bed) -> Path:
    """Embed the text in one process, once."""
    output = bed.work / "embed" / "one.hdf5"
    if not output.exists():
        output.parent.mkdir()
        lines = (bed.work / "demo" / "text" / "train.txt").read_text("utf-8").splitlines()
        text = "\n".join(itertools.islice(itertools.cycle(lines), LINES))
        (output.parent / "text.txt").write_text(text + "\n", "utf-8")
        finish([bed.start(bed.cluster.n1, [sys.executable, *_script(bed, output)])])
    return output


def _script(bed: Bed, output: Path) -> list[str]:
    paths = [f"--model={bed.reference}", f"--input={bed.work / 'embed' / 'text.txt'}"]
    return [str(ROOT / "launch" / "embed.py"), *paths, "--pool=mean", f"--output={output}"]


def _compare(one: Path, two: Path) -> str:
    """Check that two files have the same content."""
    with h5py.File(one) as expected, h5py.File(two) as found:
        assert expected.keys() == found.keys()
        for name in expected:
            assert dict(expected[name].attrs) == dict(found[name].attrs), name
            assert np.array_equal(expected[name][()], found[name][()]), f"{name} differs"
        return f"{len(found) - 1:,} sentences, bit-identical to those of one process"


SCENARIOS = (embed, embed_killed_rank)
