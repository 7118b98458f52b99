"""Whole jobs on a SparkSession: export and verify."""
