"""The cleaner of a broker, its process replaced by one that works here, dies, or hangs."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kafka_protocol.types import TopicPartition
from local_log.cleaner.cleaner import LogCleaner
from local_log.cleaner.log_pass import CleanerSettings, Job
from local_log.cleaner.process import Answer, ProcessWorker, WorkerLostError, do_job
from local_log.config import LogConfig
from local_log.file_names import CLEANED, SWAP
from local_log.log.partition_log import PartitionLog
from local_log.manager.log_dirs import LogManager
from tests.support.sim.faulty_disk import FaultyDisk
from tests.support.sim.ports import SimPorts, simulated
from tests.support.worlds.cleaned_logs import COMPACTED, commit, put
from tests.support.worlds.local_log import TOPIC_ID

TP = TopicPartition("orders", 0)
SETTINGS = CleanerSettings(backoff_ms=1000, buffer_bytes=1000, map_bytes=1 << 20)


class HereWorker(ProcessWorker):
    """Does a job as the process does; `before` is called with the job, and may raise."""

    def __init__(self, ports: SimPorts) -> None:
        self._ports = ports
        self._answers: deque[Answer] = deque()
        self.jobs: list[Job] = []
        self.kills = self.stops = 0
        self.before: Callable[[Job], None] = lambda _job: None
        self.each: Callable[[Answer], None] = lambda _answer: None

    def begin(self, job: Job) -> None:
        self.jobs.append(job)
        self._answers.clear()
        self.before(job)
        do_job(job, self._answers.append, lambda _: None, self._ports.disk)

    def next_answer(self) -> Answer:
        if not self._answers:
            raise WorkerLostError("it died")
        answer = self._answers.popleft()
        self.each(answer)
        return answer

    def kill(self) -> None:
        self.kills += 1

    def stop(self) -> None:
        self.stops += 1

    def collect(self) -> None:
        pass

    def close(self) -> None:
        pass


class World:
    def __init__(self, path: Path) -> None:
        self.disk = FaultyDisk()
        self.ports = simulated(disk=self.disk)
        self.configs: dict[str, LogConfig] = {}
        self.logs = LogManager([path], lambda topic: self.configs.get(topic, COMPACTED), self.ports)
        self.logs.lock()
        self.logs.load()
        self.directory = self.logs.dirs[0]
        self.worker = HereWorker(self.ports)
        self.settings = SETTINGS
        self.cleaner = LogCleaner(self.logs, lambda: self.settings, self.ports, self.worker)

    def log(self, topic: str = "orders", **config: object) -> PartitionLog:
        self.configs[topic] = replace(COMPACTED, **config)  # type: ignore[arg-type]
        return self.logs.create(topic, 0, TOPIC_ID)

    def checkpoint(self, tp: TopicPartition = TP) -> int | None:
        return self.logs.cleaned_to(tp)

    def leftovers(self, log: PartitionLog) -> list[str]:
        return [p.name for p in log.directory.iterdir() if p.name.endswith((CLEANED, SWAP))]


def fill(log: PartitionLog, batches: int = 30, *, keys: int = 3) -> None:
    for number in range(batches):
        put(log, (f"k{number % keys}", f"{number}" + "v" * 100))
    commit(log)
