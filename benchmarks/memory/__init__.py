"""Benchmarks of the memory service: speed, updates, injection, recall, faults."""
