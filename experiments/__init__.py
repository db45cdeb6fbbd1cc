"""The experiment of docs/results.md: run it with `make results DATA=DIR`."""
