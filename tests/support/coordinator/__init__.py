"""Carries the group coordinator's decisions out, without a broker, on a clock of its own."""
