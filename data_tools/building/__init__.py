"""From text to the shards of a corpus."""
