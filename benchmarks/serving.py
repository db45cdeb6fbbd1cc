"""Measure the service under load: `python benchmarks/serving.py`

Starts `bilm serve` on a free port and sends requests to /v1/embed from several clients, each with
one sentence. Prints one JSON line per number of clients: requests and words per second, the
median and the 95th percentile of the time to an answer, and the mean number of requests per batch.
Then it compares answers under load with answers to single requests; all must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CONSONANTS, VOWELS = "bcdfghklmnprstvz", "aeiou"
HEADERS = {"Content-Type": "application/json", "Accept": "application/octet-stream"}
TIMEOUT_SECONDS = 120


def main() -> None:
    """Start the service, measure, and stop it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="english-small")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seconds", type=float, default=5.0, help="per number of clients")
    arguments = parser.parse_args()
    sentences = make_sentences(200)
    with serving(arguments.model) as port:
        alone = [embed(port, sentence) for sentence in sentences]
        for clients in arguments.clients:
            print(json.dumps(measure(port, sentences, clients, arguments.seconds)), flush=True)
        with ThreadPoolExecutor(max(arguments.clients)) as pool:
            together = list(pool.map(lambda sentence: embed(port, sentence), sentences))
        equal = sum(a == b for a, b in zip(alone, together, strict=True))
        print(json.dumps({"equal_answers": equal, "answers": len(alone)}))


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
def serving(model: str) -> Iterator[int]:
    """Run the service, and yield its port."""
    command = [sys.executable, "-m", "bilm", "serve", "--model", model, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield urlsplit(process.stdout.readline().strip()).port or 0
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_SECONDS)


def embed(port: int, sentence: list[str]) -> bytes:
    """Return the vectors of a sentence."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        return request(connection, sentence)
    finally:
        connection.close()


def request(connection: HTTPConnection, sentence: list[str]) -> bytes:
    """Send a request on an open connection."""
    connection.request("POST", "/v1/embed", json.dumps({"sentences": [sentence]}), HEADERS)
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {data[:200]!r}")
    return data


def batches(port: int) -> tuple[float, float]:
    """Return the number of batches so far, and of requests in them."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    connection.request("GET", "/metrics")
    lines = dict(
        line.rsplit(" ", 1)
        for line in connection.getresponse().read().decode().splitlines()
        if not line.startswith("#")
    )
    connection.close()
    return float(lines["bilm_batches_total"]), float(lines["bilm_batched_requests_total"])


def measure(
    port: int, sentences: list[list[str]], clients: int, seconds: float
) -> dict[str, float]:
    """Send requests from `clients` threads for `seconds`, and return the figures."""
    times: list[float] = []
    words = [0] * clients
    before, start = batches(port), time.perf_counter()
    stop = threading.Event()

    def run(client: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        place = client
        while not stop.is_set():
            sentence = sentences[place % len(sentences)]
            begin = time.perf_counter()
            request(connection, sentence)
            times.append(time.perf_counter() - begin)
            words[client] += len(sentence)
            place += clients
        connection.close()

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(run, client) for client in range(clients)]
        stop.wait(seconds)
        stop.set()
        for own in running:
            own.result()
    elapsed = time.perf_counter() - start
    after = batches(port)
    return {
        "clients": clients,
        "cores": os.cpu_count() or 1,
        "requests_per_second": len(times) / elapsed,
        "words_per_second": sum(words) / elapsed,
        "median_seconds": statistics.median(times),
        "seconds_95": float(np.quantile(times, 0.95)),
        "requests_per_batch": (after[1] - before[1]) / max(1.0, after[0] - before[0]),
    }


if __name__ == "__main__":
    main()
