"""Baselines on the same split: `python -m downstream.baselines`."""
