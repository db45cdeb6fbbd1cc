"""Measure the exact search for nearest occurrences: `python benchmarks/search.py`

Writes random vectors in float16 to a file, maps it as `bilm index` does, and searches it with
`nearest_rows`. Prints JSON lines: the time of the first query, the median and the maximum of the
following ones, and whether rows and cosines equal those of scikit-learn's brute force, which reads
all vectors in float32 (1 GB for a million rows of 256).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bilm.distributed.process import share_cores
from downstream.analyses.nearest import BLOCK_ROWS, LayerRows, Match, nearest_rows
from downstream.explorer.index_format import VECTOR_DTYPE
from downstream.features.mapped_rows import MappedRows


def main() -> None:
    """Write the vectors, search, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument("--dim", type=int, default=256, help="(default: %(default)s)")
    parser.add_argument("--queries", type=int, default=20, help="(default: %(default)s)")
    parser.add_argument("--count", type=int, default=10, help="neighbours (default: %(default)s)")
    arguments = parser.parse_args()
    share_cores()
    rng = np.random.default_rng(0)
    queries = rng.standard_normal((arguments.queries, arguments.dim)).astype(np.float32)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "layer.bin"
        norms = write(path, arguments.rows, arguments.dim)
        rows = MappedRows(path, VECTOR_DTYPE, (arguments.rows, arguments.dim))
        layer = LayerRows([rows], [1.0], norms)
        found, seconds = [], []
        for query in queries:
            begin = time.perf_counter()
            found.append(nearest_rows(layer, query, arguments.count))
            seconds.append(time.perf_counter() - begin)
        figure = {
            "rows": arguments.rows,
            "dim": arguments.dim,
            "first_seconds": round(seconds[0], 4),
            "median_seconds": round(float(np.median(seconds[1:])), 4),
            "max_seconds": round(max(seconds[1:]), 4),
        }
        print(json.dumps(figure), flush=True)
        print(json.dumps(compare(path, found, queries)))


def write(path: Path, num_rows: int, dim: int) -> np.ndarray:
    """Write random vectors block by block, and return their norms."""
    rng = np.random.default_rng(1)
    norms = []
    with open(path, "wb") as file:
        for start in range(0, num_rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, num_rows - start)
            block = rng.standard_normal((size, dim), dtype=np.float32).astype(VECTOR_DTYPE)
            norms.append(np.linalg.norm(block.astype(np.float32), axis=1))
            file.write(block.data)
    return np.concatenate(norms).astype(np.float32)


def compare(path: Path, found: list[list[Match]], queries: np.ndarray) -> dict[str, object]:
    """Compare with the brute force of scikit-learn; return the number of equal queries."""
    from sklearn.neighbors import NearestNeighbors

    stored = np.fromfile(path, VECTOR_DTYPE).reshape(-1, queries.shape[1])
    search = NearestNeighbors(n_neighbors=len(found[0]), metric="cosine", algorithm="brute")
    distances, rows = search.fit(stored.astype(np.float32)).kneighbors(queries)
    num_equal = sum(
        [match.row for match in own] == other
        for own, other in zip(found, rows.tolist(), strict=True)
    )
    cosines = np.array([[match.cosine for match in own] for own in found])
    difference = float(np.abs(cosines - (1 - distances)).max())
    return {
        "queries": len(queries),
        "equal_to_scikit_learn": num_equal,
        "largest_difference_of_cosines": float(f"{difference:.2g}"),
    }


if __name__ == "__main__":
    main()
