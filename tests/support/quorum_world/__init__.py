"""Simulated quorums of the production code: nodes on ports of `tests.support.sim`, one seed a run."""
