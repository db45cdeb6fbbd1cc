"""The sections of docs/performance.md on whole programs: runs under `deepspeed`, contention,
inference, the service, and building a corpus. Each is empty until its figures exist.
"""

from __future__ import annotations

from report_table import RATIO_HEAD, Figure, json_lines, ratio, seconds, table


def deepspeed_part(figures: list[Figure]) -> list[str]:
    """Return the section on steps of real runs, compared with the isolated step."""
    speeds = [
        (f["config"], f["contender"], f"{f['words_per_second']:,.0f}")
        for f in figures
        if "contender" in f
    ]
    ratios = [
        (f["config"], f["name"], f["than"], *ratio(f), f.get("peak_times", ""))
        for f in figures
        if "times" in f
    ]
    head = ("config", "", "compared with", *RATIO_HEAD, "speedup of the matrix product alone")
    return [
        "## Steps under `deepspeed`",
        'One thread per process, and the batch of the configuration. "isolated" is the step of '
        "the section above on one thread.",
        table(("config", "", "words/s"), speeds),
        table(head, ratios),
    ]


def contention_part(figures: list[Figure]) -> list[str]:
    """Return the section on training and embedding beside busy processes."""
    rows = [
        (
            f["workload"],
            f["busy"],
            f["contender"],
            f"{f['words_per_second']:,.0f}",
            f"{f['times']:.2f}",
            f"{f['kept']:.2f}",
            f["rounds"],
            _spread(f),
        )
        for f in figures
        if "workload" in f
    ]
    head = ("workload", "busy processes", "threads", "words/s", "compared with 1 thread")
    return [
        "## Beside busy processes",
        'Two cores, on which other processes of equal priority never wait. "Kept" is the speed '
        "relative to the same threads beside no other process.",
        table((*head, "kept", "rounds", "spread"), rows),
    ]


def _spread(figure: Figure) -> str:
    spread = f"{100 * figure['spread']:.1f}%"
    return f"**too noisy: {spread}**" if figure.get("is_too_noisy") else spread


def inference_part(figures: list[Figure]) -> list[str]:
    """Return the section on the embedder: ratios in a table, and all other figures."""
    ratios = [(f["name"], f["than"], *ratio(f)) for f in figures if "than" in f]
    tables = [table(("", "compared with", *RATIO_HEAD), ratios)] if ratios else []
    return ["## Inference", *tables, json_lines(f for f in figures if "than" not in f)]


def serving_part(figures: list[Figure]) -> list[str]:
    """Return the section on the service under load, and its memory."""
    speeds = [
        (
            f["contender"],
            f"{f['words_per_second']:,}",
            seconds(f["median_seconds"]) if "median_seconds" in f else "",
            seconds(f["seconds_99"]) if "seconds_99" in f else "",
            f.get("wrong_answers", ""),
        )
        for f in figures
        if "contender" in f
    ]
    ratios = [(f["name"], f["than"], *ratio(f)) for f in figures if "than" in f]
    memory = [
        (f"{f['requests']:,}", ", ".join(map(str, f["memory_mib"])), f["wrong_answers"])
        for f in figures
        if "memory_mib" in f
    ]
    return [
        "## Service",
        "`bilm serve` with english-small; each request embeds one sentence. The clients run on the "
        "same cores. An answer is wrong if it differs in any bit from the answer to the request "
        "alone.",
        table(("", "words/s", "median time", "99th percentile", "wrong answers"), speeds),
        table(("", "compared with", *RATIO_HEAD), ratios),
        table(("requests", "MiB after each tenth of them", "wrong answers"), memory),
    ]


def search_part(figures: list[Figure]) -> list[str]:
    """Return the section on the search for nearest occurrences."""
    return ["## Search in an index", json_lines(figures)]


def build_part(figures: list[Figure]) -> list[str]:
    """Return the section on building a corpus."""
    return ["## Building a corpus", json_lines(figures)]
