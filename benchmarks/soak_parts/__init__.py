"""The parts of benchmarks.soak: its store, its clients, its validator."""
