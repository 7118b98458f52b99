"""Tells all stories to a broker, and puts the transcripts of two brokers side by side."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka_protocol.wire.api_keys import ApiKey
from tests.support.brokers.process import until
from tests.support.brokers.raw_client import create_topic
from tests.support.differential.comparison import Side, compare
from tests.support.differential.groups import joining, later, looking, membership, offsets
from tests.support.differential.groups.stories import SECOND, TOPIC, Story
from tests.support.differential.groups.talk import Said, Talk

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "4",
    "group.coordinator.rebalance.protocols": "classic",
    "offsets.topic.num.partitions": "4",
    "offset.metadata.max.bytes": "4096",
    "auto.create.topics.enable": "false",
}
"""Of both brokers."""

AT_ONCE = 5

LATER = {"offsets.retention.check.interval.ms": "200"}
"""What changes with the restart: before it, no empty group goes away meanwhile."""


def all_stories() -> Iterator[Story]:
    """Every story in every version."""
    for module in (looking, joining, membership, offsets):
        yield from module.stories()


def prepare(side: Side) -> None:
    """Two topics, and a coordinator that is there."""
    with side.connect() as client:
        create_topic(client, TOPIC, 2)
        create_topic(client, SECOND, 1)
    wait_for_coordinators(side)
    side.learn_topics()


def wait_for_coordinators(side: Side) -> None:
    """Until each partition of `__consumer_offsets` has a coordinator that is loaded."""
    with side.connect() as client:

        def is_found() -> bool:
            for number in range(16):  # some for each partition of the topic
                asked = {"key_type": 0, "coordinator_keys": [f"g-{number}"]}
                answer = client.ask(ApiKey.FIND_COORDINATOR, 4, asked)
                if answer.coordinators[0].error_code != 0:
                    return False
                loaded = client.ask(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [f"g-{number}"]})
                if loaded.groups[0].error_code != 0:
                    return False
            return True

        until(is_found, f"{side.name} has its group coordinators")


Transcripts = dict[tuple[str, int], list[Said]]


def told(side: Side, stories: Iterable[Story]) -> Transcripts:
    """The transcript of each story; some are told side by side, for they wait most of the time."""

    def tell(story: Story) -> tuple[tuple[str, int], list[Said]]:
        talk = Talk(side, story.group)
        _tell(talk, story.tell)
        talk.close()
        return (story.name, story.version), talk.transcript

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(tell, stories))


def told_over_a_restart(side: Side, restart: Callable[[], None]) -> Transcripts:
    """The transcripts of stories whose second half comes after a restart."""
    talks = []
    for name, before, after in later.OVER_A_RESTART:
        talk = Talk(side, name.replace(" ", "-"))
        _tell(talk, before)
        talks.append((name, talk, after))
    restart()
    wait_for_coordinators(side)
    for _, talk, after in talks:
        talk.close()
        _tell(talk, after)
        talk.close()
    return {(name, 0): talk.transcript for name, talk, _ in talks}


def _tell(talk: Talk, tell: Callable[[Talk], None]) -> None:
    try:
        tell(talk)
    except Exception as error:
        last = traceback.format_exception_only(error)[-1].strip()
        talk.note("the story ends", f"early: {last}", ApiKey.API_VERSIONS, 0)


def everything(side: Side, restart: Callable[[dict[str, str]], None]) -> Transcripts:
    """All transcripts; `restart` is given the settings that change."""
    prepare(side)
    found = told(side, all_stories())
    found |= told_over_a_restart(side, lambda: restart(LATER))
    return found | told(side, later.stories())


def differences(kafka: Transcripts, ours: Transcripts) -> Iterator[str]:
    """One line for each field in which an answer differs.

    What follows in a story after a request of its own differs is another conversation: it is left.
    """
    for (name, version), theirs in kafka.items():
        mine = ours[name, version]
        for number, (one, other) in enumerate(zip(theirs, mine, strict=False), 1):
            at = f"{name} v{version} {number:02d} {one.label}"
            if (one.label, one.asked) != (other.label, other.asked):
                yield f"{at}: continues otherwise: ours={other.label} {other.asked}"
                break
            for path, wanted, got in compare(one.answer, other.answer):
                yield f"{at} {_brief(one.asked)}: {path}: kafka={wanted!r} ours={got!r}"
        else:
            if len(theirs) != len(mine):
                yield f"{name} v{version}: kafka said {len(theirs)} lines, ours {len(mine)}"


def _brief(asked: Any) -> str:
    return str(asked)[:300]
