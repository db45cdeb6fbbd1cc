"""Build a corpus from raw text: tokenize, count, shuffle, write shards. Does not import torch."""
