"""The list of removed tiered topics against a twin that keeps all that was said of an id."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from metadata_topic.controller.topic_deletion import delete_topics, note_emptied
from metadata_topic.image.image import EMPTY_IMAGE, MetadataImage
from metadata_topic.image.model import Provenance
from metadata_topic.image.records import MetadataRecord, decode_record, encode_record, make
from metadata_topic.image.replay import replay_all
from metadata_topic.image.snapshot_records import snapshot_records

IDS = [bytes([n]) * 16 for n in range(1, 7)]
SWITCH, DROP = "remote.storage.enable", "remote.log.delete.on.disable"

Step = tuple[str, int, str, str]
steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "config", "delete", "emptied", "snapshot"]),
        st.integers(0, len(IDS) - 1),
        st.sampled_from([SWITCH, DROP, "retention.ms"]),
        st.sampled_from(["true", " TRUE", "false", "1"]),
    ),
    max_size=40,
)


class Twin:
    """Knows topics by what was ever said of them; an id is created once."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []

    def did(self, what: str, topic_id: bytes) -> bool:
        return (what, topic_id) in self.said

    def removed(self) -> set[bytes]:
        found = set()
        for topic_id in IDS:
            mine = [what for what, whose in self.said if whose == topic_id]
            if "delete" in mine and "tiered" in mine[: mine.index("delete")]:
                found.add(topic_id)
            last = max((n for n, what in enumerate(mine) if what == "emptied"), default=-1)
            if last > max((n for n, what in enumerate(mine) if what == "delete"), default=-1):
                found.discard(topic_id)
        return found


def apply(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    as_read = [decode_record(encode_record(record)) for record in records]
    return replay_all(image, as_read, Provenance(image.provenance.offset + 1, 1, 1))[0]


@given(steps)
def test_the_list_holds_what_was_tiered_and_removed_and_not_emptied(history: list[Step]) -> None:
    image, twin = EMPTY_IMAGE, Twin()
    for what, index, name, value in history:
        topic_id, topic = IDS[index], f"t{index}"
        exists = twin.did("create", topic_id) and not twin.did("delete", topic_id)
        match what:
            case "create" if not (twin.did("create", topic_id)):
                image = apply(image, [make("TopicRecord", name=topic, topic_id=topic_id)])
                twin.said.append(("create", topic_id))
            case "config" if exists:
                config = make(
                    "ConfigRecord", resource_type=2, resource_name=topic, name=name, value=value
                )
                image = apply(image, [config])
                if name in (SWITCH, DROP) and value.strip().lower() == "true":
                    twin.said.append(("tiered", topic_id))
            case "delete" if exists:
                image = apply(image, list(delete_topics(image, [(topic, bytes(16))]).records))
                twin.said.append(("delete", topic_id))
            case "emptied":
                image = apply(image, list(note_emptied(image, [topic_id]).records))
                if topic_id in twin.removed():
                    twin.said.append(("emptied", topic_id))
            case "snapshot":
                image = apply(EMPTY_IMAGE, list(snapshot_records(image)))
        assert set(image.removed_tiered_topics) == twin.removed()


@given(st.lists(st.binary(min_size=16, max_size=16), unique=True, min_size=2, max_size=20))
def test_ids_keep_the_order_of_their_removal(ids: list[bytes]) -> None:
    image = apply(EMPTY_IMAGE, [make("NoOpRecord", removed_tiered_topics=ids)])
    again = list(apply(EMPTY_IMAGE, list(snapshot_records(image))).removed_tiered_topics)
    assert all(ids.index(one) < ids.index(two) for one, two in pairwise(again))
    assert len(again) == len(ids)
