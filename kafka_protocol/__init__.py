"""Bytes to values and back: wire messages, record batches, files.

Floor 0: no sockets, files or clock.
"""
