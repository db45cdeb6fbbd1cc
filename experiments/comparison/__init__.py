"""Compare bilm with other systems: `python -m experiments.comparison --data DIR --work DIR`."""
