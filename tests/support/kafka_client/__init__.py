"""The node behind a client's connection in tests: on a real socket, or on a simulated network."""
