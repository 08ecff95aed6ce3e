"""Benchmarks of others: each in a process of its own that holds its code and data; the model stays on our side."""
