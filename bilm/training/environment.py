"""`environment.json` of a run: hardware, versions and corpus of its last start, for model cards."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import bilm
from bilm.distributed.process import num_cores, processor_name
from bilm.distributed.ranks import Ranks
from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text

ENVIRONMENT_FILE = "environment.json"


class Environment(Section):
    """The machine of rank 0, the number of ranks, and the versions of the main packages."""

    processor: str
    cores: int
    memory_gib: int
    accelerator: str | None
    ranks: int
    versions: dict[str, str]
    corpus: str  # its fingerprint

    @classmethod
    def of_this_process(cls, ranks: Ranks, corpus: str) -> Environment:
        """Describe the machine and the packages of this process."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            processor=processor_name(),
            cores=num_cores(),
            memory_gib=round(memory / 2**30),
            accelerator=_accelerator_name(ranks.device),
            ranks=ranks.world,
            versions={
                "bilm": bilm.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "deepspeed": _installed_version("deepspeed"),
            },
            corpus=corpus,
        )


def write_environment(directory: Path, ranks: Ranks, corpus: str) -> None:
    """Write the environment of rank 0 into the directory of a run on the corpus `corpus`."""
    with ranks.fail_together():
        if ranks.is_first:
            environment = Environment.of_this_process(ranks, corpus)
            text = environment.model_dump_json(indent=2) + "\n"
            write_text(directory / ENVIRONMENT_FILE, text)


def read_environment(directory: Path) -> Environment | None:
    """Return the environment of a run, or None if an earlier version of bilm wrote the run."""
    path = directory / ENVIRONMENT_FILE
    if not path.is_file():
        return None
    return parse_section(Environment, read_json(path, CheckpointError), str(path), CheckpointError)


def _accelerator_name(device: torch.device) -> str | None:
    if device.type == "cpu":
        return None
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
