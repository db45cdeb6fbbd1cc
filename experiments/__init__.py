"""The experiment of docs/results.md: `make results DATA=DIR` repeats it from the texts."""
