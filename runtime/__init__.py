"""The process's access to its machine, as ports with a real and a simulated side. Floor 0."""
