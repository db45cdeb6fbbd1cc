"""Analyses of a trained biLM; each is a command that writes figures, a page and a plot."""
