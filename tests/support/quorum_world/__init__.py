"""Simulated quorums of the production code: nodes on ports of `runtime.sim`, one seed a run."""
