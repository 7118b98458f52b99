"""The driver of one stream, as a program that may be killed: `stream_driver.py JSON`.

It ends when the stream does: with 0 where everything was read, else with what went wrong on
stderr. The document says: `master`, `format`, `options` (of the source), `path` (of the Parquet
sink) or `sink` (the format and options of another one), `checkpoint`, and `available_now`.
"""

import json
import sys

from tests.support.spark.session import spark_session


def main() -> None:
    """Run the stream of the first argument to its end."""
    asked = json.loads(sys.argv[1])
    with spark_session(asked["master"], **asked.get("settings", {})) as spark:
        rows = spark.readStream.format(asked["format"]).options(**asked["options"]).load()
        sink = asked.get("sink") or {"format": "parquet", "options": {"path": asked["path"]}}
        writer = rows.writeStream.format(sink["format"]).options(**sink["options"])
        writer = writer.option("checkpointLocation", asked["checkpoint"])
        if asked["available_now"]:
            writer = writer.trigger(availableNow=True)
        writer.start().awaitTermination()


if __name__ == "__main__":
    main()
