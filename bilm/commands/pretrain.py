"""Pretrain a biLM: `deepspeed --module bilm.commands.pretrain --config big [section.key=value ...]`

In a checkout, `deepspeed launch/pretrain.py --config configs/big.json` does the same. With an
existing `train.output_dir` the same command resumes that run. Without the `deepspeed` launcher
(`bilm pretrain ...`) the run has one rank. With `--restarts`, the command starts the ranks itself,
on the machines of `--hostfile` or on the GPUs of this one, and restarts them after exit code 4.

Exit codes: 0 finished; 2 an error in the configuration, the corpus or the run directory; 3 a loss
or a gradient is not finite; 4 a rank was lost; 75 stopped by a signal, after saving a checkpoint.
After 4 and 75, run the same command to resume.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from bilm.distributed.launchers import adopt_launcher
from bilm.distributed.machines import Machine, read_hostfile
from bilm.distributed.port import check_port
from bilm.distributed.process import configure_process, rank_numbers
from bilm.errors import (
    STOPPED_EXIT_CODE,
    USER_ERROR_EXIT_CODE,
    ConfigError,
    MissingPackageError,
    run_command,
)
from bilm.extras import TRAINING, require
from bilm.training.config import Config, load_config
from bilm.training.train import train

CONFIG_HELP = "configuration file, or the name of a shipped one, such as big"


@dataclass(frozen=True)
class Options:
    """The command line."""

    config: Path
    overrides: tuple[str, ...]
    fresh: bool
    allow_changes: bool
    verify: bool
    plan: bool
    vocabulary_size: int | None
    words: int | None
    words_per_second: float | None
    gpu: str | None
    ranks: str | None
    link: str | None
    ranks_per_machine: int | None
    dry_run: bool
    restarts: int | None
    hostfile: Path | None
    probe_seconds: float


def main() -> int:
    """Read the configuration, then train, print the plan, or try one step."""
    options = _parse()
    adopt_launcher()
    rank = rank_numbers().rank
    try:
        config = load_config(options.config, options.overrides)
        require("training", *TRAINING)  # also for a plan, which measures their memory
    except (ConfigError, MissingPackageError):
        if rank == 0:
            raise
        time.sleep(2)  # let rank 0 print the error: the launcher ends all ranks when one exits
        return USER_ERROR_EXIT_CODE
    if options.restarts is not None or options.hostfile is not None:
        return _train_with_restarts(config, options)
    _set_up_logging(rank)
    if options.plan:
        if rank == 0:
            _print_plan(config, options)
        return 0
    check_port()
    # torch and deepspeed are imported late, so that --help and configuration errors are fast
    if options.dry_run:
        configure_process()
        from bilm.training.setup import dry_run

        return dry_run(config, options.verify)
    result = train(
        config, fresh=options.fresh, allow_changes=options.allow_changes, verify=options.verify
    )
    return 0 if result.is_finished else STOPPED_EXIT_CODE


def _train_with_restarts(config: Config, options: Options) -> int:
    if rank_numbers().world > 1:
        raise ConfigError("--restarts starts the ranks itself; run the command without a launcher")
    if options.restarts is None:
        raise ConfigError(
            "--hostfile needs --restarts. Pass --restarts 3, or start the command "
            "with `deepspeed --hostfile`"
        )
    if options.restarts < 0 or options.probe_seconds <= 0:
        raise ConfigError("--restarts must be at least 0, and --probe-seconds above 0")
    if options.plan or options.dry_run:
        raise ConfigError("--restarts cannot be combined with --plan or --dry-run; omit it")
    from bilm.commands.restarts import RestartOptions, run_with_restarts

    changes = ("--allow-changes",) if options.allow_changes else ()
    here = Machine("localhost", _num_gpus() or 1)
    own = RestartOptions(
        machines=(here,) if options.hostfile is None else read_hostfile(options.hostfile),
        num_restarts=options.restarts,
        probe_seconds=options.probe_seconds,
        flags=("--config", str(options.config), *changes, *options.overrides),
        first_flags=(*("--fresh",) * options.fresh, *("--verify",) * options.verify),
    )
    _set_up_logging(0)
    return run_with_restarts(config, own)


def _num_gpus() -> int:
    if os.environ.get("DS_ACCELERATOR") == "cpu":
        return 0
    import torch

    return torch.cuda.device_count()


def _print_plan(config: Config, options: Options) -> None:
    configure_process()  # as in a run, since it affects the memory
    os.environ["DS_ACCELERATOR"] = "cpu"  # for which the memory is planned
    from bilm.commands.plan import TextSize, format_plan, make_plan
    from bilm.commands.plan_gpu import find_gpu, format_gpu_plan
    from bilm.commands.plan_scaling import ScalingFlags, format_scaling, format_traffic

    gpu = None if options.gpu is None else find_gpu(options.gpu)
    flags = ScalingFlags(
        options.ranks, options.link, options.ranks_per_machine, options.words_per_second
    )
    ranks, link = flags.planned_ranks(), flags.make_link(gpu)
    text = None
    if options.vocabulary_size is not None and options.words is not None:
        text = TextSize.assumed(options.vocabulary_size, options.words)
    elif options.vocabulary_size is not None or options.words is not None:
        raise ConfigError("--vocabulary-size and --words must be passed together")
    plan = make_plan(config, text, options.words_per_second, ranks)
    print(format_plan(plan))
    if ranks:
        print(format_traffic(plan, ranks))
    if gpu is not None:
        print(format_gpu_plan(plan, gpu))
    if link is not None:
        print(format_scaling(plan, link, flags, gpu))


def _parse() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, help=CONFIG_HELP)
    parser.add_argument("--fresh", action="store_true", help="fail if output_dir contains a run")
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="resume even if settings that affect the result, such as the learning rate, have "
        "changed",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="hash every file of the corpus, also files that have not changed since they were "
        "verified",
    )
    _add_plan_flags(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="run one step with the real shapes and write nothing"
    )
    _add_restart_flags(parser)
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_intermixed_args()
    return Options(
        config=arguments.config,
        overrides=tuple(arguments.override),
        fresh=arguments.fresh,
        allow_changes=arguments.allow_changes,
        verify=arguments.verify,
        plan=arguments.plan,
        vocabulary_size=arguments.vocabulary_size,
        words=arguments.words,
        words_per_second=arguments.words_per_second,
        gpu=arguments.gpu,
        ranks=arguments.ranks,
        link=arguments.link,
        ranks_per_machine=arguments.ranks_per_machine,
        dry_run=arguments.dry_run,
        restarts=arguments.restarts,
        hostfile=arguments.hostfile,
        probe_seconds=arguments.probe_seconds,
    )


def _add_plan_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print parameters, memory, traffic, steps, disk space and hours, and exit",
    )
    parser.add_argument(
        "--vocabulary-size", type=int, help="plan for this vocabulary, before the corpus exists"
    )
    parser.add_argument(
        "--words", type=int, help="plan for this many training words, before the corpus exists"
    )
    parser.add_argument(
        "--words-per-second",
        type=float,
        help="measured throughput of one rank, from which --plan computes the hours",
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="let --plan estimate step time and memory on a GPU (a100)"
    )
    parser.add_argument(
        "--ranks", metavar="N[,N...]", help="let --plan plan these numbers of ranks, such as 8,16"
    )
    parser.add_argument(
        "--link",
        metavar="RATE",
        help="let --plan estimate step times on several machines, given the rate of the network "
        "link of each machine in Mbit or Gbit per second, such as 100Mbit or 10Gbit",
    )
    parser.add_argument(
        "--ranks-per-machine", type=int, metavar="N", help="ranks on each machine, for --link (1)"
    )


def _add_restart_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--restarts",
        type=int,
        metavar="N",
        help="start the ranks, and restart them up to N times after one was lost",
    )
    parser.add_argument(
        "--hostfile",
        type=Path,
        help="with --restarts: the machines, one line `name slots=8` each; those that do not "
        "answer to ssh are left out until they do",
    )
    parser.add_argument(
        "--probe-seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="how often to look for machines that have been left out (30)",
    )


def _set_up_logging(rank: int) -> None:
    prefix = "" if rank == 0 else f"[rank {rank}] "
    logging.basicConfig(
        level=logging.INFO if rank == 0 else logging.WARNING,
        format=f"%(asctime)s {prefix}%(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    # At the default level DeepSpeed logs its whole configuration at each start.
    os.environ.setdefault("DS_LOG_LEVEL", "warning")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)


def run() -> NoReturn:
    """Run the command and exit."""
    run_command(main, tear_down=False)


if __name__ == "__main__":
    run()
