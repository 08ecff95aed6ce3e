"""The twelve stage scripts; each runs as ``python -m stages.<name>``."""
