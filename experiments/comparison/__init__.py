"""The comparison of docs/comparison.md: `python -m experiments.comparison --data DIR --work DIR`."""
