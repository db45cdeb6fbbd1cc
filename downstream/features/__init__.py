"""Representations of texts: computed, cached on disk, and read in batches."""
