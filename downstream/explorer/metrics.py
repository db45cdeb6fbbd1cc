"""Counters of the service in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import defaultdict

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counts requests, batches and words; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._buckets: dict[tuple[str, float], int] = defaultdict(int)
        self._seconds: dict[str, float] = defaultdict(float)
        self._counts: dict[str, int] = defaultdict(int)
        self._batches = self._batched_requests = self._words = 0

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request to one of the routes."""
        with self._lock:
            self._requests[path, status] += 1
            self._counts[path] += 1
            self._seconds[path] += seconds
            for bound in _BUCKETS:
                if seconds <= bound:
                    self._buckets[path, bound] += 1

    def count_batch(self, num_requests: int, num_words: int) -> None:
        """Count a batch."""
        with self._lock:
            self._batches += 1
            self._batched_requests += num_requests
            self._words += num_words

    def text(self, queued_words: int) -> str:
        """Return all figures."""
        with self._lock:
            lines = [
                "# HELP bilm_requests_total Requests by route and status.",
                "# TYPE bilm_requests_total counter",
            ]
            for (path, status), count in sorted(self._requests.items()):
                lines.append(f'bilm_requests_total{{route="{path}",status="{status}"}} {count}')
            lines += self._histogram()
            figures = {
                "bilm_batches_total": ("counter", "Computed batches.", self._batches),
                "bilm_batched_requests_total": (
                    "counter",
                    "Requests in computed batches.",
                    self._batched_requests,
                ),
                "bilm_words_total": ("counter", "Words in computed batches.", self._words),
                "bilm_queued_words": ("gauge", "Words that wait.", queued_words),
            }
        for name, (kind, text, value) in figures.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"

    def _histogram(self) -> list[str]:
        name = "bilm_request_seconds"
        lines = [f"# HELP {name} Time from request to answer.", f"# TYPE {name} histogram"]
        for path, count in sorted(self._counts.items()):
            for bound in _BUCKETS:
                number = self._buckets[path, bound]
                lines.append(f'{name}_bucket{{route="{path}",le="{bound:g}"}} {number}')
            lines.append(f'{name}_bucket{{route="{path}",le="+Inf"}} {count}')
            lines.append(f'{name}_sum{{route="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'{name}_count{{route="{path}"}} {count}')
        return lines
