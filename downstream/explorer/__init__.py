"""The explorer: an index of occurrences, a service with dynamic batching, and a web page."""
