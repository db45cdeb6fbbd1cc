"""Character ids, vocabulary, tokenizers, and readers of text lines and tables."""
