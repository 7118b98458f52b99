"""Carries a seed out, as any client would: topics are created and their records produced.

A topic that exists is left alone, so a second start changes nothing. What was begun and cannot be
finished is deleted again, by the next start where this one was killed, so that none takes it for
done.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from broker.config.key import ConfigError
from kafka_protocol.errors import TidemarkError
from tidemark.seed.plan import SeedPlan, SeedTopic
from tidemark.seed.records import SeedError, wrong
from tidemark.seed.unfinished import UnfinishedSeed, exists

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


_running: set[asyncio.Task[None]] = set()

_REQUEST_S_MAX: Final = 30.0
_FLUSH_S: Final = 0.2
_MESSAGE_BYTES_MAX: Final = 1_000_000_000
"""The broker is to say what is too large: it knows the topic."""

Say = Callable[[str], None]


class SeedStopped(TidemarkError):
    """Somebody wants no more of it."""


class Seeder:
    """Seeds one broker."""

    def __init__(
        self, plan: SeedPlan, bootstrap_servers: str, unfinished: UnfinishedSeed, say: Say
    ) -> None:
        """`say` is told in one line what was done to each topic."""
        self._plan, self._unfinished, self._say = plan, unfinished, say
        self._config: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 3}
        self._is_stopped = False

    def stop(self) -> None:
        """End `run` soon, from another thread."""
        self._is_stopped = True

    def run(self) -> None:
        """Create what is not there, and fill it.

        Raises:
            SeedError: the broker refuses a topic or a record.
            SeedStopped: `stop` was called.
        """
        from confluent_kafka import KafkaException  # not needed without a seed
        from confluent_kafka.admin import AdminClient

        try:
            self._run(AdminClient(self._config))
        except KafkaException as error:
            raise SeedError(f"{self._plan.path}: the broker says: {error.args[0].str()}") from error
        except OSError as error:
            raise SeedError(f"{self._plan.path}: {error}") from error

    def _run(self, admin: Any) -> None:
        self._take_back(admin)
        for topic in self._plan.topics:
            if exists(admin, topic.name) or not self._create(admin, topic):
                self._say(f"topic {topic.name} exists already: left alone")
                continue
            try:
                self._fill_somehow(admin, topic)
            except SeedStopped:
                raise  # the broker ends and takes no request any more; the next start deletes it
            except BaseException:
                with suppress(Exception):
                    self._delete(admin, topic.name)
                    self._unfinished.end()
                raise
            self._unfinished.end()
            what = f"partitions={topic.partitions} records={topic.record_count}"
            self._say(f"topic {topic.name} is seeded: {what}")
            if topic.warning:
                self._say(f"warning: {topic.warning}")

    def _fill_somehow(self, admin: Any, topic: SeedTopic) -> None:
        """Fill a topic with batches.

        Where one is refused begin again, with a batch for each record.

        A batch fails as a whole: only a record alone says which one is wrong, and a topic may take
        records that it does not take together.
        """
        try:
            self._fill(topic, {})
        except SeedError:
            self._delete(admin, topic.name)
            if not self._create(admin, topic):
                what = f"topic {topic.name}: another client created it meanwhile; it is left alone"
                raise wrong(self._plan.path, topic.line, what) from None
            self._fill(topic, {"batch.num.messages": 1})

    def _take_back(self, admin: Any) -> None:
        """Delete what a killed start has left of a topic."""
        topic = self._unfinished.topic
        if topic and self._unfinished.is_about(admin, topic):
            self._delete(admin, topic)
            self._say(f"topic {topic} was seeded in part only, by a start that ended: deleted")
        self._unfinished.end()

    @staticmethod
    def _delete(admin: Any, topic: str) -> None:
        admin.delete_topics([topic])[topic].result(_REQUEST_S_MAX)

    def _create(self, admin: Any, topic: SeedTopic) -> bool:
        """Create a topic, noted as unfinished; False where there is one of that name."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.cimpl import NewTopic  # where it is not only imported

        self._unfinished.begin(topic.name)
        new = NewTopic(topic.name, topic.partitions, config=dict(topic.configs))
        try:
            admin.create_topics([new], request_timeout=_REQUEST_S_MAX)[topic.name].result()
        except KafkaException as error:
            self._unfinished.end()
            cause = error.args[0]
            if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise wrong(self._plan.path, topic.line, f"topic {topic.name}: {cause.str()}") from None
        self._unfinished.created(admin, topic.name)
        return True

    def _fill(self, topic: SeedTopic, config: dict[str, Any]) -> None:
        if not topic.record_files:
            return
        from confluent_kafka import Producer

        producer = Producer(
            {
                **self._config,
                "enable.idempotence": True,
                "allow.auto.create.topics": False,  # one that is deleted stays so
                "linger.ms": 5,
                "partitioner": "murmur2_random",  # as Java's clients
                "message.max.bytes": _MESSAGE_BYTES_MAX,
                **config,
            }
        )
        failed: list[SeedError] = []
        try:
            self._send(producer, topic, failed)
        except BaseException:
            producer.purge()  # nothing of it may come into a topic that is made again
            producer.flush(_FLUSH_S)
            raise

    def _send(self, producer: Any, topic: SeedTopic, failed: list[SeedError]) -> None:
        """Hand all records to the producer, and wait for their acknowledgements."""
        for path, record in topic.records():
            given: dict[str, Any] = {
                "key": record.key,
                "value": record.value,
                "headers": list(record.headers),
                "on_delivery": _noting(failed, path, record.line),
            }
            if record.timestamp_ms is not None:
                given["timestamp"] = record.timestamp_ms
            if record.partition is not None:
                given["partition"] = record.partition
            self._produce(producer, topic.name, given)
            self._check(failed)
        while producer.flush(_FLUSH_S):
            self._check(failed)
        self._check(failed)

    def _produce(self, producer: Any, topic: str, given: dict[str, Any]) -> None:
        """Hand a record to the producer, when there is room for it."""
        while True:
            try:
                producer.produce(topic, **given)
            except BufferError:
                producer.poll(_FLUSH_S)
                self._check([])
            else:
                producer.poll(0)
                return

    def _check(self, failed: list[SeedError]) -> None:
        if failed:
            raise failed[0]
        if self._is_stopped:
            raise SeedStopped


def _noting(
    failed: list[SeedError], path: Path, line: int
) -> "Callable[[KafkaError | None, Message], None]":
    def done(error: "KafkaError | None", _: "Message") -> None:
        if error is not None:
            failed.append(wrong(path, line, f"the broker refuses the record: {error.str()}"))

    return done


def seed_at_start(
    fatal: "asyncio.Future[None]",
    seeder: Seeder,
    done: Callable[[], None],
) -> None:
    """Begin to seed; called on the broker's loop.

    Args:
        fatal: fails where the seed does: the broker ends with its message.
        seeder: of this broker.
        done: called at the end, when all went well.
    """
    task = asyncio.get_running_loop().create_task(_seed(fatal, seeder, done))
    _running.add(task)  # the loop alone would not keep it
    task.add_done_callback(_running.discard)


async def _seed(fatal: "asyncio.Future[None]", seeder: Seeder, done: Callable[[], None]) -> None:
    try:
        await asyncio.to_thread(seeder.run)
    except asyncio.CancelledError:
        seeder.stop()  # the broker ends: its thread is waited for
        raise
    except SeedStopped:
        return
    except SeedError as error:
        if not fatal.done():
            fatal.set_exception(ConfigError("--seed", None, str(error)))
        return
    done()
