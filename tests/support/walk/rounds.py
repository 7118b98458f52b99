"""A walk: one broker through many lives, each begun on damaged files and ended in the midst.

Each round damages a few files while the broker is down, starts it, compares every partition with
what was acknowledged, lets clients work, and kills or stops the broker. What was refused is healed
by the next start, and must be served whole then.
"""

import re
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

from kafka_protocol.files.offset_checkpoint import LOG_STARTS
from tests.support.brokers.directories import DirectoriesBroker
from tests.support.brokers.process import until
from tests.support.brokers.tiered_topics import create, delete_topic
from tests.support.brokers.traffic import VALUE_BYTES, Lane
from tests.support.damage.life import SETTINGS
from tests.support.damage.table import COPIED, PLAIN, TIERED
from tests.support.walk.backups import delete_as_named
from tests.support.walk.check import Look
from tests.support.walk.choice import REMOTE_METADATA_STORY, Choice, is_prelude
from tests.support.walk.counting import Counting
from tests.support.walk.damages import Surgeon, Wound, is_refusable, may_exit
from tests.support.walk.oracle import History, World
from tests.support.walk.stories import Moment, Scene, Story
from tests.support.walk.traffic import WalkTraffic
from tests.support.walk.ways import Ways

SEGMENT_BYTES = 5 * VALUE_BYTES
RETAINED_BYTES = 20 * VALUE_BYTES
RECORDS = 12  # of each partition in each life, at least
BRIEF_MAX = 2  # topics that come and go
KEPT_MAX = 80  # records of a partition, before DeleteRecords takes most of them
REMOTE = {"remote_storage_enable": "true"}
LOCAL = {"local_retention_bytes": "1"}
RETAINED = {"retention_bytes": str(RETAINED_BYTES)}
TOPICS: dict[str, tuple[str, int, dict[str, str]]] = {
    "plain": (PLAIN, 3, {}),
    "short": (PLAIN, 2, RETAINED),
    "copied": (COPIED, 2, REMOTE),
    "tiered": (TIERED, 3, REMOTE | LOCAL),
    "waning": (TIERED, 2, REMOTE | LOCAL | RETAINED),
}
WALK_SETTINGS = {
    name: value for name, value in SETTINGS.items() if "topic.num.partitions" not in name
} | {
    "tidemark.remote.copy.max.ms": "4000",
    "tidemark.remote.delete.grace.ms": "3000",
    "tidemark.remote.chunk.cache.disk.bytes": str(1 << 20),
}


class Walk:
    """One broker, what was done to it, and what it must still have.

    Attributes:
        damages, outcomes: how often each came.
    """

    def __init__(self, directory: Path, seed: int, *, only: str = "") -> None:
        """All damages, or only those whose kind begins with `only`."""
        self.broker = DirectoriesBroker(
            directory / "broker", log_directories=2, tiered=True, settings=dict(WALK_SETTINGS)
        )
        self._seed = seed
        self._world = World({})
        self.counting = Counting(self.broker, self._world)
        self._surgeon = Surgeon(self.broker, directory / "old", {}, only)
        self.ways = Ways(self.broker)
        self._scene = Scene(self._surgeon, self._world, self.counting, self.ways)
        self.choice = Choice(self._scene, only)
        self._story: Story | None = None
        self._frozen: dict[str, int] = {}
        self._pending: list[Wound] = []
        self._unread: list[Wound] = []
        self._hurt: set[Lane] = set()
        self._lasting: list[Wound] = []
        self._startless: set[Lane] = set()
        self._was_killed = False
        self.damages: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()

    def prepare(self) -> None:
        """Make the topics, and live a first life."""
        self.broker.start()
        self.broker.is_formatted = True
        for topic in TOPICS:
            self._create(topic)
        self._live(Random(self._seed), list(self._world.histories))
        self._remember()

    def round(self, number: int) -> None:
        """One round; whatever is lost, wrong, silent or unexplained fails it."""
        dice = Random(f"{self._seed}/{number}")
        spared = self._heal(dice)
        if is_prelude(number) and not spared:  # what was just undone is not judged yet
            self._remember()
        after = self._after()
        if after is not None:
            spared = set(self._world.histories)
        self._story = None if after else self.choice.choose(number, dice, spared)
        wounds = self._operate(dice, spared, is_prelude(number))
        self.damages.update(wound.kind for wound in wounds)
        print(f"round {number}: " + ("; ".join(map(str, wounds)) or "no damage"), flush=True)
        wounds = self._start(wounds)
        self._await_red()
        self._last_resort(wounds)
        self._look(wounds)
        if after is not None:
            after()
        self._walk_up(Random(f"{self._seed}/{number}/way out"), wounds)
        if not self._hurt:
            self._change_topics(dice, number)
        served = [lane for lane in self._world.histories if lane not in self._hurt]
        self._live(dice, served, must_tier=is_prelude(number))

    def _after(self) -> Callable[[], None] | None:
        """What the story that has just ended leaves to do."""
        story = self._story
        return story.after if story is not None and story.is_over else None

    def _remember(self) -> None:
        self._surgeon.remember()
        histories = self._world.histories
        self._scene.moment = Moment(deepcopy(histories), dict(self._surgeon.lanes))

    def _operate(self, dice: Random, spared: set[Lane], is_harmless: bool) -> list[Wound]:
        """The story's damage, and others that do not touch its partitions."""
        story = self._story
        if story is None:
            return self._surgeon.operate(dice, self._was_killed, spared, is_harmless=is_harmless)
        touched = spared | story.lanes
        # What was put back may be of a life that ended by a kill.
        others = self._surgeon.operate(dice, True, touched, spares_tier=True)
        self._frozen = self._objects(story)
        return [story, *others]

    def finish(self) -> None:
        """Everything is healed: all is served, and store and metadata agree."""
        self._heal(None)
        after, self._story = self._after(), None
        self._start([])
        self._look([])
        if after is not None:
            after()
        assert not self._hurt, self._hurt
        put_back = self._surgeon.put_back
        last: list[str] = []

        def agree() -> bool:
            last[:] = self.counting.disagreements(put_back)
            return not last

        try:
            until(agree, "store and metadata agree")
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(last)) from None
        until(lambda: '"status": "green"' in self._health(), "health is green")
        self._judge()

    # ------------------------------------------------------------------ a start

    def _heal(self, dice: Random | None) -> set[Lane]:
        """Undo what was refused, or let a person accept it; the lanes that must be whole now."""
        spared = set(self._hurt)
        for wound in self._pending:
            is_alone = len(self._pending) == 1
            if isinstance(wound, Story):
                self._end(wound, dice)
            elif dice and is_alone and dice.random() < 0.5 and self._accept(wound):
                self.outcomes["accepted"] += 1
            else:
                wound.heal()
        for lane in sorted(self._startless):
            self._accept_log(lane)
            self._world.histories[lane].seen_start = 0
        self._pending, self._hurt, self._startless = [], set(), set()
        return spared

    def _end(self, story: Story, dice: Random | None) -> None:
        """The way out of a story, or its undoing."""
        self._check_frozen(story)
        if story.way and (dice is None or story.must or dice.random() < 0.85):
            story.way(dice or Random(self._seed))
        else:
            story.heal()
            self.ways.walked[f"undone: {story.kind}"] += 1
        story.is_over = True

    def _objects(self, story: Story) -> dict[str, int]:
        objects = self._surgeon.objects(set(story.frozen))
        return {str(path): path.stat().st_size for path in objects}

    def _check_frozen(self, story: Story) -> None:
        """Nothing was copied or deleted that a person had still to decide about."""
        now = self._objects(story)
        changed = sorted(now.items() ^ self._frozen.items())
        assert not changed, f"after {story}: the store changed: {changed[:3]}"

    def _await_red(self) -> None:
        """Health names what only a person can end; until then nobody asks for records."""
        story = self._story
        if story is not None and story.red:
            until(lambda: re.search(story.red, self._health()), f"health says {story.red}")

    def _health(self) -> str:
        return self.broker.http("/health")[1]

    def _walk_up(self, dice: Random, wounds: list[Wound]) -> None:
        """The way out beside the running broker; what it ends is served after it."""
        story = self._story
        if story is None or story.is_over:
            return
        self.counting.catch_up()
        self._check_frozen(story)
        if story.way_up is None or not story.way_up(dice, self._health()):
            return
        way_up = story.way_up
        story.is_over = True
        self._pending = [wound for wound in self._pending if wound is not story]
        left = [wound for wound in wounds if wound is not story]

        def is_served() -> bool:
            refused = self._compare(wounds).refused & story.lanes
            return not (refused and way_up(dice, self._health()))

        until(is_served, f"what {story} hid is served after its way out")
        self._hurt = {lane for lane in self._hurt if is_refusable(left, lane)}

    def _accept(self, wound: Wound) -> bool:
        """The documented way out of a plain log that lost records."""
        [lane, *others] = sorted(wound.lanes)
        is_plain = self._surgeon.lanes.get(lane) == PLAIN
        is_segment = wound.path is not None and wound.path.suffix == ".log"
        if others or not is_plain or not is_segment:
            return False
        self.ways.accept_log(lane)
        if not self._accept_log(lane):
            return False
        history = self._world.histories[lane]
        history.given_up_below = history.sent
        return True

    def _accept_log(self, lane: Lane) -> bool:
        """Whether there was something to accept: a wrong checksum is left to the reader."""
        arguments = ("accept", lane[0], str(lane[1]), "--yes")
        done = self.broker.command("log", *arguments, "--config", str(self.broker.config_file))
        assert done.returncode == 0, (lane, done.stdout, done.stderr)
        return "accepted; restart" in done.stdout

    def _start(self, wounds: list[Wound]) -> list[Wound]:
        """Start it, twice where it refuses by naming a file; the damages that it lives with."""
        said_before = len(self.broker.log_text())
        self.broker.start(wait=False)
        process = self.broker.process
        assert process is not None
        until(
            lambda: process.poll() is not None or self.broker.http("/ready")[0] == 200,
            "the broker is ready or ends",
        )
        code = process.poll()
        if code is None:
            self._unread += [one for one in may_exit(wounds) if _is_read_at_last(one)]
            return wounds
        said = self.broker.log_text()[said_before:]
        to_blame = may_exit(wounds) + self._unread
        assert code == 1, f"exit {code} after {list(map(str, wounds))}: {said[-600:]}"
        assert any(one.path and _names(said, one.path) for one in to_blame), (
            f"exit 1 after {list(map(str, wounds))} names no damaged file: {said[-600:]}"
        )
        self.outcomes["exit"] += 1
        if self._story in to_blame and self._story is not None and self._story.on_exit:
            self._story.on_exit(said)
            return self._start(wounds)
        for wound in to_blame:
            wound.heal()
        self._unread.clear()
        return self._start([wound for wound in wounds if wound not in to_blame])

    def _look(self, wounds: list[Wound]) -> None:
        """Compare; heal the store; what is still refused has no clients in this life."""
        look = self._compare(wounds)
        hurt = look.refused
        of_store = [wound for wound in wounds if wound.path is None]
        left = [wound for wound in wounds if wound.path is not None]
        for wound in of_store:
            wound.heal()
        if of_store and any(wound.lanes & hurt for wound in of_store):
            curable = [lane for lane in hurt if not is_refusable(left, lane)]
            until(
                lambda: not self._compare(wounds).refused & set(curable),
                f"{curable} are served again from healed objects",
            )
        self._hurt = hurt & {lane for lane in hurt if is_refusable(left, lane)}
        self._pending = [wound for wound in left if wound.is_curable(self._hurt)]
        self._lasting = [wound for wound in left if wound.lanes & self._hurt]
        if any(wound.path and wound.path.name == LOG_STARTS for wound in left):
            # The checkpoint is written anew without them: their log starts are lost for good.
            self._startless = {lane for lane in self._hurt if self._surgeon.lanes[lane] == PLAIN}

    def _last_resort(self, wounds: list[Wound]) -> None:
        """Give up what was damaged before, where nothing else tells it any more.

        A copy of a checkpoint, or of a chain, is older than what went on meanwhile. As a rule the
        remote metadata tell the rest; not where these were put back before.
        """
        lasting, self._lasting = self._lasting, []
        is_told = not self.choice.told[REMOTE_METADATA_STORY]
        if lasting and not is_told and self._compare([*wounds, *lasting]).refused:
            lanes = frozenset[Lane]().union(*(wound.lanes for wound in lasting))
            delete_as_named(self._scene, lanes, self._health())

    def _compare(self, wounds: list[Wound]) -> Look:
        histories = list(self._world.histories.values())
        look = Look(self.broker, histories, wounds, self.counting.bounds())
        assert not look.complaints, "\n".join(look.complaints)
        for history in histories:
            answer = look.answers[history.lane]
            self.outcomes["refused" if answer.refused else "served"] += 1
            self.outcomes["records compared"] += answer.read
            if answer.high >= 0:
                history.acknowledged = history.sent = answer.high
                history.seen_start = answer.low
        return look

    # ------------------------------------------------------------------ a life

    def _live(self, dice: Random, served: list[Lane], *, must_tier: bool = False) -> None:
        """Clients work, then the broker is killed or stopped while they do."""
        histories = self._world.histories
        is_whole = len(served) == len(histories)
        cut = self._choose_cut(dice, served)
        read = [lane for lane in served if lane != cut and histories[lane].is_dense]
        read = dice.sample(read, min(2, len(read)))
        ends = {lane: histories[lane].sent for lane in served}
        with WalkTraffic(self.broker, ends, read) as traffic:
            if dice.random() < 0.2 and self.broker.tier_pid() is not None:
                self.broker.kill_tier()
            if cut is not None:
                self._delete_records(cut, dice)
            traffic.acknowledged(RECORDS)
            traffic.end_reading()
            if is_whole:
                if (must_tier or dice.random() < 0.4) and not self._pending:
                    until(self._is_tiered, "all closed segments of tiered topics are remote only")
                self._note_sent(traffic)
                self._judge()
            traffic.go_on()
            self._was_killed = dice.random() < 0.6
            if self._was_killed:
                self.broker.kill()
            else:
                assert self.broker.terminate() == 0, self.broker.log_tail()
            traffic.check()
        self._note_sent(traffic)

    def _note_sent(self, traffic: WalkTraffic) -> None:
        for lane, sent in traffic.writing.sent.items():
            history = self._world.histories[lane]
            history.acknowledged = traffic.writing.acknowledged[lane]
            history.sent = sent

    def _judge(self) -> None:
        complaints = self.counting.judge()
        assert not complaints, "\n".join(complaints)

    def _is_tiered(self) -> bool:
        lanes = [lane for lane, kind in self._surgeon.lanes.items() if kind == TIERED]
        return all(len(self.broker.local_segments(*lane)) <= 2 for lane in lanes)

    # ------------------------------------------------------------------ admin

    def _choose_cut(self, dice: Random, served: list[Lane]) -> Lane | None:
        histories = self._world.histories
        possible = [lane for lane in served if histories[lane].retention_bytes is None]
        large = [
            lane
            for lane in possible
            if histories[lane].sent - histories[lane].latest_start > KEPT_MAX
        ]
        if large:
            return dice.choice(large)
        return dice.choice(possible) if possible and dice.random() < 0.4 else None

    def _delete_records(self, lane: Lane, dice: Random) -> None:
        history = self._world.histories[lane]
        low = max(history.latest_start, history.acknowledged - KEPT_MAX // 2)
        offset = dice.randint(min(low, history.acknowledged), history.acknowledged)
        history.deleted_below = max(history.deleted_below, offset)
        self.ways.delete_records(lane, offset)

    def _create(self, topic: str, of: str = "") -> None:
        kind, partitions, config = TOPICS[of or topic]
        create(self.broker, topic, partitions, internal_segment_bytes=str(SEGMENT_BYTES), **config)
        retained = config.get("retention_bytes")
        for number in range(partitions):
            self._surgeon.lanes[topic, number] = kind
            self._world.histories[topic, number] = History(
                (topic, number), kind != PLAIN, int(retained) if retained else None
            )

    def _change_topics(self, dice: Random, number: int) -> None:
        """A few topics that live for some rounds."""
        live = sorted({lane[0] for lane in self._world.histories} - TOPICS.keys())
        if not is_prelude(number) and (len(live) >= BRIEF_MAX or (live and dice.random() < 0.2)):
            self._delete(dice.choice(live))
        elif is_prelude(number) or dice.random() < 0.4:
            self._create(f"brief{number}", "tiered")

    def _delete(self, topic: str) -> None:
        self._world.deleted_topics.add(topic)
        for lane in [one for one in self._world.histories if one[0] == topic]:
            del self._world.histories[lane], self._surgeon.lanes[lane]
        delete_topic(self.broker, topic)


def _is_read_at_last(wound: Wound) -> bool:
    """Whether nobody reads the file until the metadata log is lost, perhaps many rounds later."""
    return wound.path is not None and wound.path.name == "bootstrap.checkpoint"


def _names(said: str, path: Path) -> bool:
    """Whether a file is named; where it is gone, its directory tells enough."""
    return str(path) in said or (not path.exists() and str(path.parent) in said)


def replay_line(seed: int, rounds: int) -> str:
    """How to walk the same way again."""
    return (
        f"replay: TIDEMARK_WALK_SEED={seed} TIDEMARK_WALK_ROUNDS={rounds}"
        " pytest tests/integration/test_damage_walk.py"
    )
