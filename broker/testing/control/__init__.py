"""Commands to a running broker from the machine it runs on: its clock, its tier, its faults."""
