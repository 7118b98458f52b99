"""Benchmarks; see compare.py and startup.py."""
