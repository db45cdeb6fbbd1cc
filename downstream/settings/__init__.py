"""Settings of a downstream experiment and their command-line flags."""
