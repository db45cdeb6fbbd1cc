"""The experiment of docs/results.md: `make results DATA=DIR` does it all again from the texts."""
