"""Help for tests of Spark's source."""
