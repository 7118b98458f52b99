"""Handlers of the controllers' listener."""
