"""Harnesses of all tests, one folder a subject. No test module is imported by another."""
