"""Readers of labelled and annotated texts."""
