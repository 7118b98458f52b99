"""The note of a topic that is being seeded: what a kill leaves of it counts as nothing.

Written before the topic is created, with its id as soon as it has one, and removed when it is full.
So a start that finds it deletes what there is of the topic, and seeds it as a whole. No other
topic is deleted: the id must be that of the note, or, where the kill came before the id was known,
the topic must be empty.
"""

import json
from pathlib import Path
from typing import Any, Final

from runtime.disk import Disk

NOTE_NAME: Final = "seeding.json"
_REQUEST_S_MAX: Final = 30.0


class UnfinishedSeed:
    """The note in a data directory; at most one topic is being seeded."""

    def __init__(self, data: Path, disk: Disk | None = None) -> None:
        self._path, self._disk = data / NOTE_NAME, disk or Disk()

    @property
    def topic(self) -> str:
        """The topic of the note, "" where there is none."""
        return self._read()[0]

    def begin(self, topic: str) -> None:
        """Note that this topic is going to be created."""
        self._write(topic, "")

    def created(self, admin: Any, topic: str) -> None:
        """Note which topic it is that was created."""
        self._write(topic, _id_of(admin, topic) or "")

    def end(self) -> None:
        """Nothing is unfinished."""
        self._disk.unlink(self._path)

    def is_about(self, admin: Any, topic: str) -> bool:
        """Whether the topic of this name in the cluster is the one of the note."""
        noted, noted_id = self._read()
        if noted != topic:
            return False
        return _id_of(admin, topic) == noted_id if noted_id else _is_empty(admin, topic)

    def _read(self) -> tuple[str, str]:
        """Name and id; the id is "" where it was not known yet, the name where there is no note."""
        try:
            said = json.loads(self._disk.read_file(self._path))
            return str(said["topic"]), str(said["topic_id"])
        except FileNotFoundError:
            return "", ""
        except (ValueError, KeyError, TypeError):
            return "", ""  # not written here: nothing is deleted for it

    def _write(self, topic: str, topic_id: str) -> None:
        said = {"topic": topic, "topic_id": topic_id}
        self._disk.atomic_write(self._path, json.dumps(said).encode() + b"\n")


def _described(admin: Any, topic: str) -> Any:
    """The topic, None where there is none."""
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    asked = admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S_MAX)
    try:
        return asked[topic].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def exists(admin: Any, topic: str) -> bool:
    """Whether there is a topic of this name."""
    return _described(admin, topic) is not None


def _id_of(admin: Any, topic: str) -> str | None:
    found = _described(admin, topic)
    return None if found is None else str(found.topic_id)


def _is_empty(admin: Any, topic: str) -> bool:
    """Whether no record was ever written to a topic; False where there is none."""
    import confluent_kafka.admin

    kafka: Any = confluent_kafka  # has no types for this
    found = _described(admin, topic)
    if found is None:
        return False
    latest = kafka.admin.OffsetSpec.latest()
    asked = {kafka.TopicPartition(topic, one.id): latest for one in found.partitions}
    ends = admin.list_offsets(asked, request_timeout=_REQUEST_S_MAX)
    return all(end.result().offset == 0 for end in ends.values())
