"""Handlers of requests, one module for each API."""
