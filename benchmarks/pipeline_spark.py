"""Reads a topic with Spark into nothing, several times, and prints the figures as JSON.

A program of its own, because one process has one Spark: `python pipeline_spark.py JSON`, with
`master`, `format`, `options`, `conf` and `rounds`. It needs pyspark and nothing of ours, so that
another Spark with its Kafka connector can run it, too.
"""

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """CPU seconds of this process and everything below it: the JVM and its Python workers."""
    below = {os.getpid()}
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has just ended
            stats[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    grew = True
    while grew:
        found = {pid for pid, (parent, _) in stats.items() if parent in below} - below
        below |= found
        grew = bool(found)
    return sum(stats[pid][1] for pid in below & stats.keys()) / TICKS


def main() -> None:
    asked = json.loads(sys.argv[1])
    builder = SparkSession.builder.master(asked["master"]).config("spark.ui.enabled", "false")
    for name, value in asked["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rounds = []
    try:
        for _ in range(asked["rounds"]):
            frame = spark.read.format(asked["format"]).options(**asked["options"]).load()
            cpu, began = cpu_s(), time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            rounds.append({"seconds": time.perf_counter() - began, "cpu_s": cpu_s() - cpu})
    finally:
        spark.stop()
    print(json.dumps({"pyspark": spark.version, "rounds": rounds}))


if __name__ == "__main__":
    main()
