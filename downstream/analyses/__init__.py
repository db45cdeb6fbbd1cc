"""Analyses of a trained biLM; each is a command that writes results, a page and a plot."""
