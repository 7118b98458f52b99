"""Hands changed settings to the logs of topics, in slices."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.replica.partition import Partition
from local_log.config import LogConfig
from runtime.ports import Ports
from runtime.work import Runner, Steps, logged

SLICE: Final = 100
"""Topics and partitions in one iteration of the event loop."""


class Reconfiguration:
    """The topics whose settings may have changed; each name is once in the queue."""

    def __init__(
        self,
        *,
        config_for: Callable[[str], LogConfig],
        partitions_of: Callable[[str], Iterable[Partition]],
        tell: Callable[[tuple[Partition, ...]], None],
        ports: Ports,
    ) -> None:
        """Change nothing yet.

        Args:
            config_for: Returns the present settings of a topic.
            partitions_of: Returns the partitions of a topic that are hosted here.
            tell: Called once a slice with the partitions whose settings have changed.
            ports: Of the process.
        """
        self._config_for, self._partitions_of, self._tell = config_for, partitions_of, tell
        self._due: OrderedDict[str, None] = OrderedDict()
        failed = logged("settings of topics")
        self._runner = Runner(self._work, ports.scheduler, failed=failed)

    def of(self, names: Iterable[str]) -> None:
        """Look at the settings of these topics; if they are few, all is done on return."""
        self._due.update(dict.fromkeys(names))
        self._runner.start()

    def when_done(self, fn: Callable[[], None]) -> None:
        """Call `fn` once the queue is empty; at once if it is."""
        self._runner.when_idle(fn)

    async def stop(self) -> None:
        """Change nothing more."""
        await self._runner.stop()

    def _work(self) -> Steps[None]:
        changed: list[Partition] = []
        for count, partition in enumerate(self._to_change(), 1):
            if partition is not None:
                changed.append(partition)
            if count % SLICE == 0:
                if changed:
                    self._tell(tuple(changed))
                    changed = []
                yield
        if changed:
            self._tell(tuple(changed))

    def _to_change(self) -> Iterator[Partition | None]:
        """Change one partition after the other; None for each topic and each unchanged one."""
        while self._due:
            name, _ = self._due.popitem(last=False)
            config = self._config_for(name)
            yield None
            for partition in list(self._partitions_of(name)):
                is_new = not partition.deleted and partition.log.config != config
                if is_new:
                    partition.set_config(config)
                yield partition if is_new else None
