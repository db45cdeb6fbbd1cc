"""Compare `bilm embed` with the bare model: `python benchmarks/bulk_embedding.py`

- whole: `bilm embed` on a text, from reading the model to the finished HDF5 file;
- bare: the encoder and the LSTMs on the same batches, whose inputs are already tensors.

Both run alternately, in one process and in two, each time in new processes that first import
PyTorch and then start together. Prints one JSON line per size and number of processes: words per
second of both, and their ratio with its range over rounds. "cpu_ratio" is the same with the CPU
time of all processes instead of the elapsed time; it ignores waiting, such as for the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bilm.distributed.process import rank_numbers, share_cores

ROOT = Path(__file__).resolve().parents[1]

SIZES: dict[str, list[str]] = {
    "small": [],  # the published size
    "256 units": [
        "model.lstm.dim=256",
        "model.lstm.projection_dim=64",
        "model.characters.filters=[[1,32],[2,32],[3,64],[4,128]]",
    ],
}


def record_batches(model: Path, text: Path) -> Iterator[Callable[[], Any]]:
    """Yield the calls of the encoder and of the LSTMs with which this rank embeds its windows."""
    import torch

    from bilm.embedding.embedder import Embedder
    from bilm.embedding.text_windows import TextWindows

    embedder = Embedder.from_pretrained(model, device="cpu")
    calls: list[Callable[[], Any]] = []

    def record(module: torch.nn.Module, inputs: Sequence[Any]) -> None:
        calls.append(lambda: module.forward(*inputs))

    torch.nn.modules.module.register_module_forward_pre_hook(
        lambda module, inputs: record(module, inputs) if type(module) in recorded else None
    )
    recorded = {type(embedder.pretrained.model.encoder), type(embedder.pretrained.model.bilstm)}
    lines = text.read_text(encoding="utf-8").splitlines()
    windows = TextWindows(lines, str.split, embedder.limits.window_words, {})
    embedder.pin_words(windows.first_words())
    numbers = rank_numbers()
    for number, window in windows.unfinished():
        if number % numbers.world == numbers.rank:
            embedder.embed([line.words for line in window])
        yield from calls
        calls.clear()


def work(kind: str, model: Path, text: Path) -> None:
    """Prepare one contender in this process, wait for a line on stdin, run it, print its times."""
    share_cores()
    import torch

    from bilm.commands import embed
    from bilm.embedding import background, embedder, text_windows  # noqa: F401

    batches = list(record_batches(model, text)) if kind == "bare" else []
    print("ready", flush=True)
    if not sys.stdin.readline():
        return  # the benchmark was interrupted
    begun, cpu_begun = time.perf_counter(), time.process_time()
    if kind == "bare":
        with torch.inference_mode():
            for call in batches:
                call()
    else:
        sys.argv = ["embed", "--model", str(model), "--input", str(text), "--device", "cpu"]
        sys.argv += ["--output", f"{text}.hdf5", "--overwrite"]
        sys.stdout = sys.stderr
        embed.main()
    seconds = (time.perf_counter() - begun, time.process_time() - cpu_begun)
    print(json.dumps(seconds), file=sys.__stdout__, flush=True)


def run_ranks(kind: str, world: int, model: Path, text: Path) -> tuple[float, float]:
    """Return the elapsed and the CPU time of one contender."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", kind, str(model), str(text)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
                **{"LOCAL_WORLD_SIZE": str(world), "MASTER_PORT": str(port)},
                "MASTER_ADDR": "127.0.0.1",
            },
        )
        for rank in range(world)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"a {kind} process has failed"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    times = [json.loads(process.communicate()[0]) for process in processes]
    return max(elapsed for elapsed, _ in times), sum(cpu for _, cpu in times)


def compare(size: str, world: int, paths: tuple[Path, Path], rounds: int) -> None:
    """Run both contenders in turn and print their figures."""
    num_words = len(paths[1].read_text(encoding="utf-8").split())
    kinds = ("bare", "whole")
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for i in range(rounds):
        for kind in kinds if i % 2 else reversed(kinds):
            times[kind].append(run_ranks(kind, world, *paths))
    figure: dict[str, Any] = {"figure": f"bilm embed, {size}", "processes": world}
    for kind in kinds:
        seconds = statistics.median(elapsed for elapsed, _ in times[kind])
        figure[f"{kind}, words/s"] = round(num_words / seconds)
    for name, place in (("ratio", 0), ("cpu_ratio", 1)):
        pairs = zip(times["bare"], times["whole"], strict=True)
        ratios = sorted(bare[place] / whole[place] for bare, whole in pairs)
        figure[name] = round(statistics.median(ratios), 3)
        figure[f"{name}_range"] = [round(ratios[0], 3), round(ratios[-1], 3)]
    print(json.dumps({**figure, "words": num_words, "rounds": rounds}), flush=True)


def measure(sentences: Sequence[Sequence[str]], rounds: int) -> None:
    """Print the figures of all sizes and numbers of processes."""
    import torch

    from bilm.model.language_model import BiLm
    from bilm.pretrained.model_directory import PretrainedBiLm
    from bilm.text.tokenizers import WhitespaceTokenizer
    from bilm.training.config import load_config

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        text.write_text("".join(" ".join(s) + "\n" for s in sentences), encoding="utf-8")
        for size, changes in SIZES.items():
            config = load_config(ROOT / "configs/small.json", changes).model
            pretrained = PretrainedBiLm(BiLm(config, None), None, WhitespaceTokenizer())
            pretrained.save_pretrained(Path(name) / size)
            for world in (1, 2):
                compare(size, world, (Path(name) / size, text), rounds)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=3000, help="number of sentences")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per contender")
    parser.add_argument("--worker", nargs=3, metavar=("KIND", "MODEL", "TEXT"), help="internal")
    arguments = parser.parse_args()
    if arguments.worker:
        kind, model, text = arguments.worker
        work(kind, Path(model), Path(text))
        return
    from inference import zipf_sentences

    measure(zipf_sentences(arguments.sentences), arguments.rounds)


if __name__ == "__main__":
    main()
