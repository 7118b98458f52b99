"""Stores that the tiers of a cluster share, and ways to lose one for a while."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.brokers.process import LOCAL_FS
from tests.support.stores.s3_faults import Fault, Rule
from tests.support.stores.s3_proxy import S3Proxy

if TYPE_CHECKING:
    from tests.support.stores.s3 import S3Endpoint

ID_CHARS: Final = 22
"""Of a topic id in the name of its folder."""
CUT_OFF: Final = (Rule(Fault.LOST_ANSWER, probability=0.5), Rule(Fault.HANG))
"""Requests that are under way are carried out without an answer; others get nowhere."""
IMPATIENT: Final = {"read.timeout.ms": "1000", "api.call.timeout.ms": "2000"}
"""A request ends within the time that a store is away."""


class TierStore(ABC):
    """One store of a cluster.

    Attributes:
        losses: names of the ways to lose it, for `lose`.
        settings: of a broker that uses it.
    """

    losses: Sequence[str]
    settings: Mapping[str, str]

    @abstractmethod
    def of_topic(self, topic: str) -> list[str]:
        """Every object of the topics that have, or had, this name. Not while the store is lost."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """The bytes of an object.

        Raises:
            FileNotFoundError: it was deleted in the meantime.
        """

    @abstractmethod
    def lose(self, how: str) -> None:
        """Make it fail or hang until `restore`; what it holds stays."""

    @abstractmethod
    def restore(self) -> None:
        """Make it work again; nothing happens where it does."""


def _is_of(topic: str, folder: str) -> bool:
    return folder[:-ID_CHARS] == f"{topic}-"


class DirectoryStore(TierStore):
    """A directory, which its users know by a link: turned to a file, the directory is away."""

    losses = ("cut",)

    def __init__(self, root: Path) -> None:
        """`root` is made where it is not there."""
        self._root, self._there = root, root.with_name(f"{root.name}-there")
        self.settings = {
            "remote.log.storage.manager.class.name": LOCAL_FS,
            "rsm.config.dir": str(root),
        }
        if not root.exists():
            self._there.mkdir(parents=True, exist_ok=True)
            root.symlink_to(self._there)

    def of_topic(self, topic: str) -> list[str]:
        folders = [one for one in self._root.glob(f"{topic}-*") if _is_of(topic, one.name)]
        return [
            os.path.relpath(os.path.join(place, name), self._root)
            for folder in folders
            for place, _, names in os.walk(folder)
            for name in names
        ]

    def read(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def lose(self, how: str) -> None:
        assert how in self.losses, how
        no_directory = self._root.with_name(f"{self._root.name}-away")
        no_directory.touch()
        self._turn(no_directory)

    def restore(self) -> None:
        self._turn(self._there)

    def _turn(self, target: Path) -> None:
        """At once: no tier finds nothing in its place, and makes a directory there."""
        other = self._root.with_name(f"{self._root.name}-turned")
        other.symlink_to(target)
        other.replace(self._root)


class S3Store(TierStore):
    """A bucket of LocalStack's S3, behind a proxy."""

    losses = ("cut", "pause")

    def __init__(self, s3: "S3Endpoint", proxy: S3Proxy) -> None:
        from tests.support.stores.s3_tier import S3Tier  # boto3 loads slowly

        self._s3, self._proxy = s3, proxy
        self._tier = S3Tier(s3, proxy.url)
        self._client = s3.client()
        self.settings = self._tier.settings() | {
            f"rsm.config.{key}": value for key, value in IMPATIENT.items()
        }

    def of_topic(self, topic: str) -> list[str]:
        found = self._tier.listing(f"{topic}-")
        return [key for key in found if _is_of(topic, key.partition("/")[0])]

    def read(self, key: str) -> bytes:
        try:
            found = self._client.get_object(Bucket=self._tier.bucket, Key=self._tier.key(key))
        except self._client.exceptions.NoSuchKey:
            raise FileNotFoundError(key) from None
        body: bytes = found["Body"].read()
        return body

    def lose(self, how: str) -> None:
        assert how in self.losses, how
        if how == "pause":
            os.kill(self._s3.pid, signal.SIGSTOP)
        else:
            self._proxy.inject(*CUT_OFF)

    def restore(self) -> None:
        os.kill(self._s3.pid, signal.SIGCONT)
        self._proxy.calm()


@contextmanager
def store_in_s3(s3: "S3Endpoint") -> Iterator[S3Store]:
    """A bucket of its own; works again afterwards, for others use the endpoint, too."""
    with S3Proxy(s3.url) as proxy:
        store = S3Store(s3, proxy)
        try:
            yield store
        finally:
            store.restore()
