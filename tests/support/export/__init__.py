"""Exports in tests: places that crash, targets in memory."""
