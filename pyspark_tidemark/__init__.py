"""The name by which Spark finds the source: `spark.read.format("tidemark")`, no registration."""
