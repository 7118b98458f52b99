"""Spark for tests: sessions, a standalone cluster, and drivers that may be killed."""
