"""Baselines on the split of `downstream.classify`: `python -m downstream.baselines`."""
