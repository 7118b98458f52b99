"""Health and metrics over HTTP, for operators and monitoring."""
