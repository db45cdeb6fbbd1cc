"""Contextual word vectors from a trained biLM."""
