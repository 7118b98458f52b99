"""Promises of plugins that keep claims (`ClaimKeeper`), which reveal restored directories."""

from collections.abc import Callable
from functools import partial
from unittest import SkipTest

from rsm_plugins.api import (
    ClaimKeeper,
    ObjectLister,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import LOG_BYTES

_HIGHEST = 2**63 - 1
_ROUNDS = 8


class ClaimPromises(Promises):
    """Promises about claims. Claims of clusters with random ids are written, and deleted again."""

    def test_a_claim_is_read_as_it_was_last_written(self, manager: RemoteStorageManager) -> None:
        """A claim is none until it is written, and then always the number written last."""
        keeper, cluster = self._keeper(manager), self._cluster()
        got = keeper.read_claim(cluster, 1)
        expect.that(got is None, f"a claim that was never written is {got!r}, not None")
        for number in (7, 8, _HIGHEST, 0):
            keeper.write_claim(cluster, 1, number)
            got = keeper.read_claim(cluster, 1)
            expect.that(got == number, f"written was {number}, read {got!r}")

    def test_claims_of_brokers_and_clusters_are_apart(self, manager: RemoteStorageManager) -> None:
        """Brokers, and clusters that share a store, have claims of their own, for any id."""
        keeper, cluster = self._keeper(manager), self._cluster()
        names = (cluster, f"{cluster}x", f"{cluster}/1", f"../{cluster}", f"{cluster} \u00e4")
        owners = {(name, node) for name in names for node in (1, 11)}
        self.claims.update(owners)
        for number, (name, node) in enumerate(sorted(owners)):
            keeper.write_claim(name, node, number)
        for number, (name, node) in enumerate(sorted(owners)):
            got = keeper.read_claim(name, node)
            expect.that(got == number, f"claim of {name!r}, node {node}: {got!r}, not {number}")

    def test_a_deleted_claim_is_gone_and_no_other(self, manager: RemoteStorageManager) -> None:
        """A deleted claim is none again, its neighbour stays; deleting twice is fine."""
        keeper, cluster = self._keeper(manager), self._cluster()
        keeper.write_claim(cluster, 1, 5)
        keeper.write_claim(cluster, 11, 6)
        for _ in range(2):
            keeper.delete_claim(cluster, 1)
            got = keeper.read_claim(cluster, 1), keeper.read_claim(cluster, 11)
            expect.that(got == (None, 6), f"after a deletion the claims are {got}, not (None, 6)")

    def test_claims_and_segments_leave_each_other_alone(
        self, manager: RemoteStorageManager
    ) -> None:
        """A deleted segment takes no claim along, a claim no segment; no listing shows a claim."""
        keeper, cluster = self._keeper(manager), self._cluster()
        keeper.write_claim(cluster, 1, 5)
        one, two = (self.copied(manager, self.segment(number)) for number in (1, 2))
        manager.delete_log_segment_data(one)
        got = keeper.read_claim(cluster, 1)
        expect.that(got == 5, f"after a segment was deleted the claim is {got!r}, not 5")
        if isinstance(manager, ObjectLister):
            listed = [found.key for found in manager.list_objects() if cluster in found.key]
            expect.that(not listed, f"a listing shows the claim: {listed}")
        keeper.delete_claim(cluster, 1)
        expect.reads(lambda: manager.fetch_log_segment(two, 0), LOG_BYTES, "the other segment")

    def test_a_claim_is_never_seen_half_written(self, manager: RemoteStorageManager) -> None:
        """A reader gets, while others write the claim, one of its numbers; later none older."""
        keeper, cluster = self._keeper(manager), self._cluster()
        numbers = [10**6 + number for number in range(_ROUNDS)]
        keeper.write_claim(cluster, 1, 3)

        def writes() -> list[int | None]:
            for number in numbers:
                keeper.write_claim(cluster, 1, number)
            return []

        def reads() -> list[int | None]:
            return [keeper.read_claim(cluster, 1) for _ in range(_ROUNDS)]

        calls: list[Callable[[], list[int | None]]] = [writes, reads, reads]
        _, *seen = expect.together(calls, deadline_s=self.deadline_s, what="writing a claim")
        for got in seen:
            known = [number for number in got if number in {3, *numbers}]
            expect.that(known == got, f"while {numbers} are written, {got} is read")
            expect.that(known == sorted(known), f"an older claim is read after a later one: {got}")
        got_last = keeper.read_claim(cluster, 1)
        expect.that(got_last == numbers[-1], f"written last was {numbers[-1]}, read {got_last!r}")

    def test_claims_of_an_unreachable_store_are_retriable_and_never_hang(
        self, unreachable_manager: RemoteStorageManager
    ) -> None:
        """With a store that does not answer no claim is read or written, and no call hangs."""
        keeper, cluster = self._keeper(unreachable_manager), self._cluster()
        calls: dict[str, Callable[[], object]] = {
            "read_claim": lambda: keeper.read_claim(cluster, 1),
            "write_claim": lambda: keeper.write_claim(cluster, 1, 1),
        }
        for name, call in calls.items():
            what = f"{name} without a store"
            check = partial(expect.fails, RetriableRemoteStorageError, call, what)
            expect.together([check], deadline_s=self.deadline_s, what=what)

    def _cluster(self) -> str:
        cluster = f"rsm-contract-{self.topic_id.hex()}"
        self.claims.update({(cluster, 1), (cluster, 11)})
        return cluster

    @staticmethod
    def _keeper(manager: RemoteStorageManager) -> ClaimKeeper:
        if not isinstance(manager, ClaimKeeper):
            raise SkipTest("the plugin keeps no claims: restored directories are not found out")
        return manager
