"""Configuration keys as data, and the typed frozen views that code receives."""
