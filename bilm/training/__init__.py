"""Pretraining: configuration, training loop, checkpoints, metrics and perplexity."""
