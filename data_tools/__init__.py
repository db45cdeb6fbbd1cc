"""From raw text to a corpus directory: tokenise, count, shuffle, write shards. Needs no torch."""
