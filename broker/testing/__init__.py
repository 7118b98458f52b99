"""Faults and commands for tests of applications; the top layer of the broker."""
