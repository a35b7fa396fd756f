"""What may be said: the schema of config.yaml, reading it with positions, and findings about it."""
