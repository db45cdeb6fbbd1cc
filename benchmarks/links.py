"""Measure training on links of limited speed, and compare it with the plan (Linux, root).

`python benchmarks/links.py MODE` simulates machines by network namespaces (links_network.py), with
one rank each, and runs real training steps (links_rank.py). Modes:

- validate: bytes and step times of 2, 4 and 8 ranks at three rates, compared with `bilm plan`;
- overlap: steps that send gradients during the backward pass, compared with steps that send them
  after it, on a link where communication takes as long as compute;
- bf16: gradients sent in bfloat16, compared with float32, on a link where communication dominates;
- page: write docs/cluster.md from the stored figures, without measuring.

Prints JSON lines, stores them in benchmarks/links.jsonl, and writes the tables of docs/cluster.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from links_network import UNLIMITED, Network  # noqa: E402
from links_page import FIGURES, Figure, write_page  # noqa: E402
from links_rank import Phase, Task  # noqa: E402
from zipf import write_zipf_corpus  # noqa: E402

from bilm.commands.plan import make_plan  # noqa: E402
from bilm.training.config import load_config  # noqa: E402
from bilm.training.scaling import Link, Work, scale_step  # noqa: E402

CONFIG = ROOT / "configs" / "small.json"
VOCABULARY, WORDS, PORT = 20_000, 400_000, 29500
RANKS, RATES = (2, 4, 8), (100_000_000, 200_000_000, 400_000_000)
TIMEOUT_SECONDS = 600
SMALL_ENCODER = "model.characters.filters=[[1,32],[2,32],[3,64],[4,128]]"
OVERRIDES = {
    "validate": ["model.lstm.dim=1536", "model.lstm.projection_dim=192"],
    "overlap": ["model.lstm.dim=2048", "model.lstm.projection_dim=256", "model.lstm.num_layers=3"],
    "bf16": ["model.lstm.dim=1536", "model.lstm.projection_dim=192"],
}
ROWS = {"validate": 64, "overlap": 128, "bf16": 32}
LOADS = {"overlap": (1.0, 0.6), "bf16": (6.0,)}  # seconds of communication per second of compute
ROUNDS = 5


def main() -> int:
    """Measure one mode, or only write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["validate", "overlap", "bf16", "page"])
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)), help="for validate")
    parser.add_argument("--steps", type=int, default=4, help="steps per phase (default: 4)")
    parser.add_argument("--discard", action="store_true", help="print the figures only")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the machines are removed
    if arguments.mode == "page":
        write_page()
        return 0
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory) / "corpus"
        corpus.mkdir()
        write_zipf_corpus(corpus, WORDS, VOCABULARY, VOCABULARY, seed=1)
        if arguments.mode == "validate":
            worlds = map(int, arguments.ranks.split(","))
            figures = [f for world in worlds for f in validate(corpus, world, arguments.steps)]
        else:
            figures = compare(corpus, arguments.mode, arguments.steps)
    if not arguments.discard:
        stored = FIGURES.read_text(encoding="utf-8").splitlines() if FIGURES.exists() else []
        measured = {(figure["mode"], figure.get("ranks")) for figure in figures}
        others = [json.loads(line) for line in stored]
        others = [f for f in others if (f["mode"], f.get("ranks")) not in measured]
        lines = [json.dumps(figure) for figure in (*others, *figures)]
        FIGURES.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        write_page()
    return 0


def overrides(mode: str, corpus: Path) -> list[str]:
    """Return the overrides of the configuration."""
    return [
        SMALL_ENCODER,
        *OVERRIDES[mode],
        "model.softmax.num_negatives=2048",
        f"deepspeed.train_batch_size={ROWS[mode]}",
        f"data.corpus={corpus}",
        "train.log.every_steps=1000000",
    ]


def validate(corpus: Path, world: int, steps: int) -> list[Figure]:
    """Compare measured bytes and times of one number of ranks with the plan."""
    config = load_config(CONFIG, overrides("validate", corpus))
    parameters = make_plan(config).parameters
    rates = [rate for each in RATES for rate in (UNLIMITED, each)]
    phases = measure(
        corpus, "validate", world, [Phase(rate, steps) for rate in (*rates, UNLIMITED)]
    )
    figures = []
    for before, phase, after in zip(phases[::2], phases[1::2], phases[2::2], strict=False):
        # Other programs may slow this machine down, so compute is measured around each phase.
        compute = statistics.median([*before["seconds"], *after["seconds"]])
        work = Work(config, parameters, lambda *_, compute=compute: compute)
        planned = scale_step(work, Link(phase["rate"]), world)
        sent = statistics.mean(phase["sent"])
        planned_sent = planned.traffic.payload + planned.traffic.headers
        seconds = statistics.median(phase["seconds"])
        figures.append(
            {
                "mode": "validate",
                "ranks": world,
                "rate": phase["rate"],
                "sent": round(sent),
                "planned_sent": round(planned_sent),
                "sent_ratio": round(planned_sent / sent, 4),
                "compute": round(compute, 3),
                "seconds": round(seconds, 3),
                "planned_seconds": round(planned.seconds, 3),
                "seconds_ratio": round(planned.seconds / seconds, 3),
            }
        )
        print(json.dumps(figures[-1]), flush=True)
    return figures


def compare(corpus: Path, mode: str, steps: int) -> list[Figure]:
    """Compare two ways of sending, in turn, on two ranks."""
    slow, fast = {"overlap": False}, {"overlap": True}
    if mode == "bf16":
        slow, fast = {"dtype": "float32"}, {"dtype": "bfloat16"}
    phases = [Phase(UNLIMITED, steps + 1)]
    for load in LOADS[mode]:
        phases += [Phase(0, steps, load=load, **way) for way in (slow, fast)] * ROUNDS
    free, *measured = measure(corpus, mode, 2, phases)
    figures = []
    for load in LOADS[mode]:
        own = [phase for phase in measured if phase["load"] == load]
        before, after = (
            [statistics.median(phase["seconds"]) for phase in own[first::2]] for first in (0, 1)
        )
        figures.append(
            {
                "mode": mode,
                "load": load,
                "rate": own[0]["rate"],
                "sent": round(statistics.mean(own[0]["sent"])),
                "compute": round(statistics.median(free["seconds"]), 3),
                "forward_share": round(free["forward"] / sum(free["seconds"]), 3),
                "slow": round(statistics.median(before), 3),
                "fast": round(statistics.median(after), 3),
                "times": round(statistics.median(before) / statistics.median(after), 3),
                "spread": sorted(round(a / b, 3) for a, b in zip(before, after, strict=True)),
            }
        )
        print(json.dumps(figures[-1]), flush=True)
    return figures


def measure(corpus: Path, mode: str, world: int, phases: list[Phase]) -> list[Figure]:
    """Run all phases on `world` machines and return their figures."""
    with tempfile.TemporaryDirectory() as directory, Network(world) as network:
        output = Path(directory) / "figures.jsonl"
        task = Task(network.names, network.hub, str(output), phases)
        command = [sys.executable, str(ROOT / "benchmarks" / "links_rank.py")]
        command += ["--config", str(CONFIG), *overrides(mode, corpus)]
        command += [f"train.output_dir={directory}/run"]
        ranks: list[subprocess.Popen[str]] = []
        try:
            for rank in range(world):
                variables = {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(world),
                    "MASTER_ADDR": network.address(0),
                    "MASTER_PORT": str(PORT),
                    "GLOO_SOCKET_IFNAME": "eth0",
                    "OMP_NUM_THREADS": "1",
                    "DS_ACCELERATOR": "cpu",
                    "BILM_LINKS_TASK": task.to_json(),
                }
                ranks.append(network.start(rank, command, {**os.environ, **variables}))
            errors = [rank.communicate(timeout=TIMEOUT_SECONDS)[1] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
        if len(lines) < len(phases):  # the first rank to exit may end others by its exit
            raise RuntimeError("\n".join(error[-2000:] for error in errors))
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    raise SystemExit(main())
