"""Stories of whole directories that were put back from a backup: all of a broker's, the metadata
log alone, the remote metadata alone. What came since the backup is lost as far as only the files of
the broker held it; the store keeps what it has until a person has decided.
"""

import re
from functools import partial
from pathlib import Path
from random import Random

from kafka_protocol.files.offset_checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from local_log.manager.log_dir import CLEAN_SHUTDOWN
from tests.support.brokers.process import until
from tests.support.brokers.tiered_topics import delete_topic
from tests.support.brokers.traffic import Lane
from tests.support.damage.table import EXIT, OFFLINE, PLAIN, WHOLE
from tests.support.walk.damages import replace_path
from tests.support.walk.stories import Scene, Story

CLUSTER_METADATA, REMOTE_METADATA = "__cluster_metadata-0", "__remote_log_metadata"
CACHE = "remote-log-metadata"


def broker_put_back(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """All directories of the broker are an hour old: a backup that a person restored.

    Nothing in them contradicts itself, only the store's claim tells. The tail of each log is lost
    and its offsets are given again, which nobody can tell of a plain topic.
    """
    directories = scene.surgeon.broker.log_directories
    if not scene.is_older_copy():
        return None
    world, moment = scene.world, scene.moment
    for directory in directories:
        replace_path(scene.old(directory), directory)
    before = world.histories
    in_store = frozenset(scene.tiered(set()))
    there_again = {lane[0] for lane in moment.histories} & world.deleted_topics
    world.put_back(moment.histories)
    scene.counting.forget_metadata()
    _set_lanes(scene, {lane: moment.lanes[lane] for lane in world.histories})
    lost = sorted(lane for lane, kind in scene.surgeon.lanes.items() if kind != PLAIN)

    def delete_again(dice: Random, health: str) -> bool:
        _delete_again(scene, there_again)
        return False  # the claim is still to be taken

    def give_up_what_was_deleted() -> None:
        for lane in lost:
            history = world.histories.get(lane)
            if lane in before and history is not None and history.deleted_below:
                scene.ways.delete_records(lane, history.deleted_below)
        scene.ways.delete_orphans()

    return Story(
        "broker put back",
        frozenset(lost),
        frozenset({WHOLE}),
        lambda: None,
        directories[0],
        red="claim: the store's claim",
        frozen=in_store | frozenset(lost),
        way=scene.ways.claim,
        must=True,
        way_up=delete_again,
        after=give_up_what_was_deleted,
    )


def metadata_put_back(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """The metadata log is older than a tiered topic: its remote data are of an unknown id."""
    world, place = scene.world, scene.first / CLUSTER_METADATA
    now, then = set(scene.surgeon.lanes), set(scene.moment.lanes)
    lost = {lane[0] for lane in now - then}
    remote = {topic for topic in lost if any(scene.pieces((topic, n)) for n in range(9))}
    if spared or not remote or not scene.old(place).is_dir():
        return None
    there_again = {topic for topic, _ in then - now}
    replace_path(scene.old(place), place)
    for lane in now - then:
        del world.histories[lane]
    _set_lanes(scene, {lane: kind for lane, kind in scene.surgeon.lanes.items() if lane in then})

    def accept(said: str) -> None:
        for directory_id in sorted(set(re.findall(r"directories accept ([\w-]{22})", said))):
            scene.ways.accept_directory(directory_id)

    def forget(dice: Random, health: str) -> bool:
        _delete_again(scene, there_again)
        for topic in sorted(remote):
            _forget(scene, dice, topic, _unknown(health)[topic])
        return True

    [first, *_] = sorted(remote)
    return Story(
        "metadata log put back",
        frozenset(now & then),
        frozenset({WHOLE, EXIT}),
        lambda: None,
        scene.first,
        red=rf"topic {first} \(id ",
        frozen=frozenset(now - then),
        must=True,
        on_exit=accept,
        way_up=forget,
    )


def remote_metadata_put_back(scene: Scene, dice: Random, spared: set[Lane]) -> Story | None:
    """What is remote is known as of an hour ago; the objects are all there."""
    broker = scene.surgeon.broker
    places = [path for log in broker.log_directories for path in log.glob(f"{REMOTE_METADATA}-*")]
    places = [path for path in places if scene.old(path).is_dir()]
    if spared or not places or _size(places) == _size([scene.old(path) for path in places]):
        return None
    for place in places:
        replace_path(scene.old(place), place)
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, CLEAN_SHUTDOWN):
            (place.parent / name).unlink(missing_ok=True)
    if dice.random() < 0.5 and scene.old(scene.first / CACHE).is_dir():
        replace_path(scene.old(scene.first / CACHE), scene.first / CACHE)
    scene.counting.forget_metadata()
    lanes = frozenset(scene.tiered(set()))
    return Story(
        "remote metadata put back",
        lanes,
        frozenset({WHOLE, OFFLINE}),
        lambda: None,
        scene.first,
        must=True,
        way_up=partial(_end_holes, scene, lanes),
    )


def _end_holes(scene: Scene, lanes: frozenset[Lane], dice: Random, health: str) -> bool:
    """DeleteRecords as health asks for it; topics that were deleted since are forgotten."""
    for topic, topic_id in sorted(_unknown(health).items()):
        _forget(scene, dice, topic, topic_id)
    delete_as_named(scene, lanes, health)
    return True


def delete_as_named(scene: Scene, lanes: frozenset[Lane], health: str) -> None:
    """What health names as lost for good is given up."""
    named = re.findall(
        r"\b([\w.]+)-(\d+): (a hole|log start unknown|chain lost).*?DeleteRecords to (\d+)", health
    )
    for topic, number, loss, offset_text in sorted(set(named)):
        lane, offset = (topic, int(number)), int(offset_text)
        assert lane in lanes, (lane, health)
        assert offset <= min(scene.surgeon.broker.local_segments(*lane)), (lane, offset, health)
        history = scene.world.histories[lane]
        history.deleted_below = max(history.deleted_below, offset)
        scene.ways.delete_records(lane, offset)
        scene.ways.walked[f"DeleteRecords, {loss}"] += 1


def _delete_again(scene: Scene, topics: set[str]) -> None:
    for topic in sorted(topics):
        delete_topic(scene.surgeon.broker, topic)
        scene.ways.walked["deleted once more"] += 1


def _unknown(health: str) -> dict[str, str]:
    """Names and ids of topics that have remote segments, and that no metadata knows."""
    return dict(re.findall(r"topic (\S+) \(id (\S+)\) has remote segments", health))


def _forget(scene: Scene, dice: Random, topic: str, topic_id: str) -> None:
    scene.world.deleted_topics.add(topic)
    scene.ways.forget(topic_id, dice)
    until(
        lambda: f"topic {topic} (id" not in scene.surgeon.broker.http("/health")[1],
        f"{topic} is forgotten",
    )


def _set_lanes(scene: Scene, lanes: dict[Lane, str]) -> None:
    scene.surgeon.lanes.clear()
    scene.surgeon.lanes.update(lanes)


def _size(places: list[Path]) -> int:
    return sum(path.stat().st_size for place in places for path in place.glob("*.log"))
