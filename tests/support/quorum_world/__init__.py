"""Simulated quorums of the production code: nodes on simulated ports, one seed a run."""
