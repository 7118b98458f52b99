"""Commands to a running broker from its own machine, for its clock, its tier and its faults."""
