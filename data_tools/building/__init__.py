"""Tokenize, count and shuffle text, and write a corpus."""
