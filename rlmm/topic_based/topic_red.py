"""In which ways the metadata topic may be red. Wording only; see `rlmm.red`."""

from kafka_protocol.topics import REMOTE_LOG_METADATA_TOPIC
from rlmm.red import RedKind, RedText


class TopicRed(RedKind):
    """What reading the metadata topic finds."""

    DAMAGED = (
        "{name} cannot be read on: its batch at offset {offset} is damaged. Nothing is copied, "
        "raised or deleted for the partitions whose remote segments it lists",
        "bytes of that log changed on its disk; all other metadata partitions go on",
        "stop the broker and bring the directory of that partition back from a copy; without one "
        "start the broker again and see `tidemark log inspect {topic} {partition}`",
    )


def damaged(partition: int, offset: int) -> RedText:
    """That a metadata partition cannot be read on from `offset`."""
    return TopicRed.DAMAGED.text(
        name=f"{REMOTE_LOG_METADATA_TOPIC}-{partition}",
        offset=offset,
        topic=REMOTE_LOG_METADATA_TOPIC,
        partition=partition,
    )
