"""Text: characters, vocabulary, tokenizers, and readers of lines and tables."""
