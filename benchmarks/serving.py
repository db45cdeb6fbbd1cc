"""Measure the service under load: `python benchmarks/serving.py`

Starts `bilm serve` and sends requests with one sentence each to /v1/embed, from 1 and from 64
clients. In each round, one call of `Embedder.embed` computes the same sentences in this process.
Prints JSON lines: words per second, the median and the 99th percentile of the time to an answer,
and the ratios of the rounds. Every answer is compared, bit for bit, with the answer to the same
request alone; wrong answers are counted.

Then `--requests` requests are sent, and the memory of the service after each tenth of them is
printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from rounds import Bounds, add_bounds, steady_rounds, summary

from bilm.distributed.process import share_cores
from bilm.embedding.embedder import Embedder

ROOT = Path(__file__).resolve().parents[1]
CONSONANTS, VOWELS = "bcdfghklmnprstvz", "aeiou"
TIMEOUT_SECONDS = 300
NUM_READINGS = 10  # of the memory
ONE_CALL = "one call of Embedder.embed"


@dataclass(frozen=True)
class Load:
    """The sentences, the requests for them, and the answers that each gets alone."""

    sentences: list[list[str]]
    requests: list[bytes]
    answers: list[bytes]

    @property
    def num_words(self) -> int:
        """The number of words of all sentences."""
        return sum(map(len, self.sentences))


@dataclass
class Tally:
    """The times to the answers of a measurement, and the number of wrong answers."""

    seconds: list[float] = field(default_factory=list)
    num_wrong: int = 0


def main() -> None:
    """Start the service, measure, and stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="english-small")
    parser.add_argument("--clients", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument(
        "--sentences", type=int, default=1000, help="different requests (default: %(default)s)"
    )
    parser.add_argument(
        "--requests",
        type=int,
        default=10_000,
        help="requests of the measurement of memory; 0 skips it (default: %(default)s)",
    )
    add_bounds(parser)
    arguments = parser.parse_args()
    share_cores()
    sentences = make_sentences(arguments.sentences)
    embedder = Embedder.from_pretrained(arguments.model)
    with serving(arguments.model) as (port, pid):
        requests = [embed_request(port, sentence) for sentence in sentences]
        alone = asyncio.run(answers(port, requests))
        check(embedder, sentences, alone)
        load = Load(sentences, requests, alone)
        bounds = Bounds(arguments.rounds, arguments.max_spread, TIMEOUT_SECONDS)
        compare(load, embedder, port, arguments.clients, bounds)
        if arguments.requests:
            memory(load, port, pid, arguments.clients, arguments.requests)


def make_sentences(count: int) -> list[list[str]]:
    """Return sentences of words drawn from Zipf's law, with log-normal lengths."""
    rng = np.random.default_rng(0)
    words = [
        "".join(rng.choice(list(part)) for part in (CONSONANTS, VOWELS) * 3) for _ in range(2000)
    ]
    shares = 1 / np.arange(1, len(words) + 1)
    lengths = np.clip(np.exp(rng.normal(3.0, 0.5, count)).astype(int), 1, 100)
    return [[str(w) for w in rng.choice(words, n, p=shares / shares.sum())] for n in lengths]


@contextmanager
def serving(model: str) -> Iterator[tuple[int, int]]:
    """Run the service, and yield its port and its process id."""
    command = [sys.executable, "-m", "bilm", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield urlsplit(process.stdout.readline().strip()).port or 0, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_SECONDS)


def embed_request(port: int, sentence: list[str]) -> bytes:
    """Return a request for the vectors of a sentence in binary form."""
    body = json.dumps({"sentences": [sentence]}).encode()
    head = (
        f"POST /v1/embed HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def answers(port: int, requests: Sequence[bytes]) -> list[bytes]:
    """Send requests one after the other, and return the bodies of the answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    bodies = [await answer(reader, writer, request) for request in requests]
    writer.close()
    return bodies


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> bytes:
    """Send a request on an open connection, and return the body of the answer."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(size)
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(f"{head.decode()}{body[:200]!r}")
    return body


def check(embedder: Embedder, sentences: list[list[str]], bodies: list[bytes]) -> None:
    """Compare the answers with the embedder, whose last bits may differ."""
    from safetensors.numpy import load

    expected = embedder.embed(sentences)
    for body, array in zip(bodies, expected, strict=True):
        np.testing.assert_allclose(load(body)["0"], array, atol=1e-5)


async def send_all(load: Load, port: int, clients: int) -> Tally:
    """Send each request once, from several clients that take the next one when they are free."""
    tally = Tally()
    waiting = iter(range(len(load.requests)))

    async def run() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        for i in waiting:
            begin = time.perf_counter()
            body = await answer(reader, writer, load.requests[i])
            tally.seconds.append(time.perf_counter() - begin)
            tally.num_wrong += body != load.answers[i]
        writer.close()

    await asyncio.gather(*(run() for _ in range(clients)))
    return tally


def compare(load: Load, embedder: Embedder, port: int, clients: int, bounds: Bounds) -> None:
    """Measure in rounds, and print the figures."""
    tallies: dict[str, Tally] = {"1 client": Tally(), f"{clients} clients": Tally()}

    def send(name: str) -> None:
        own = asyncio.run(send_all(load, port, int(name.split()[0])))
        tallies[name].seconds += own.seconds
        tallies[name].num_wrong += own.num_wrong

    def take_round() -> dict[str, float]:
        seconds = {name: timed(lambda name=name: send(name)) for name in tallies}  # type: ignore[misc]
        return seconds | {ONE_CALL: timed(lambda: embedder.embed(load.sentences))}

    many = f"{clients} clients"
    pairs = [(many, "1 client"), (many, ONE_CALL)]

    def ratios_of(rounds: list[dict[str, float]]) -> list[list[float]]:
        return [[own[than] / own[name] for own in rounds] for name, than in pairs]

    rounds = steady_rounds(take_round, ratios_of, bounds)
    for name in rounds[0]:
        speed = load.num_words / float(np.median([own[name] for own in rounds]))
        figure: dict[str, object] = {"contender": name, "words_per_second": round(speed)}
        if name in tallies:
            own = tallies[name]
            figure["median_seconds"] = round(float(np.median(own.seconds)), 5)
            figure["seconds_99"] = round(float(np.quantile(own.seconds, 0.99)), 5)
            figure |= {"answers": len(own.seconds), "wrong_answers": own.num_wrong}
        print(json.dumps(figure), flush=True)
    for (name, than), ratios in zip(pairs, ratios_of(rounds), strict=True):
        print(json.dumps({"name": name, "than": than, **summary(ratios, bounds.max_spread)}))


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def memory(load: Load, port: int, pid: int, clients: int, num_requests: int) -> None:
    """Send requests, and print the resident memory of the service after each part of them."""
    size = max(1, num_requests // NUM_READINGS)
    order = [i % len(load.requests) for i in range(size)]
    part = Load(load.sentences, [load.requests[i] for i in order], [load.answers[i] for i in order])
    readings = []
    num_wrong = 0
    for _ in range(NUM_READINGS):
        num_wrong += asyncio.run(send_all(part, port, clients)).num_wrong
        readings.append(resident_mib(pid))
    figure = {"requests": NUM_READINGS * size, "wrong_answers": num_wrong}
    print(json.dumps({**figure, "memory_mib": readings}), flush=True)


def resident_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return round(int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) / 1024)


if __name__ == "__main__":
    main()
