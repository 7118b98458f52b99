"""What may have happened to a partition before its bucket is read, each as a function.

Each takes an empty partition and gives it back; nothing is lost in any of them: `missing` is empty.
"""

from collections.abc import Callable

from tests.support.lake.bucket import Bucket
from tests.support.lake.partition import LakePartition, Objects, Upto

Story = Callable[[LakePartition], LakePartition]
NOW_MS = 1_700_000_000_000


def every_kind_of_record(orders: LakePartition) -> LakePartition:
    """All codecs, nulls, headers, both kinds of timestamps, several epochs."""
    for codec in range(5):
        orders.lead(2 * codec)
        orders.append("plain", None, b"", codec=codec)
        orders.append(
            (NOW_MS + 5, None, b"no key", []),
            (NOW_MS + 3, b"", None, [("h", b"1"), ("h", None), ("näme", b"")]),
            (-1, b"no time", b"x" * 3_000, [("n" * 200, b"\0" * 300)]),
            codec=codec,
        )
        orders.append("stamped", "too", append_time_ms=NOW_MS + codec, codec=codec)
        orders.batches(5, 40, codec=codec).roll()
    return orders.copy().append("local only")


def an_unclean_election(orders: LakePartition) -> LakePartition:
    """Segments partly and wholly off the chain, and offsets that were written twice."""
    orders.batches(4).roll().batches(2).roll().batches(2).roll().copy()  # to 11, 17, 23
    orders.elect(3, at=15, rolls=[12]).roll()  # 12 to 14 lie in the old leader's copy alone
    return orders.batches(3).roll().batches(1).roll().copy()  # 15 to 23, 24 to 26


def two_unclean_elections(orders: LakePartition) -> LakePartition:
    """The second one falls below the first; each leader's replica rolls elsewhere."""
    orders.batches(6).roll().batches(4).roll().copy()  # to 17, 29
    orders.elect(2, at=24, rolls=[9, 18]).batches(2).roll().batches(2).roll().copy()
    orders.elect(5, at=21, rolls=[6, 12]).batches(3).roll().copy(again=True)
    return orders.elect(6).batches(2).roll().copy()


def overlapping_copies(orders: LakePartition) -> LakePartition:
    """A second leader's segments end elsewhere, and both sets are there; of both some go again."""
    orders.batches(4).roll().batches(4).roll().copy()
    orders.elect(1, rolls=[6, 15]).batches(2).roll().copy(again=True)
    orders.copy(again=True)
    return orders.delete(0).delete(2, Objects.NO_MANIFEST).delete(6, Objects.ALL)


def abandoned_copies(orders: LakePartition) -> LakePartition:
    """Copies that ended at every step, and deletions likewise, beside those that count."""
    orders.batches(4).roll().batches(4, codec=4).roll()
    for upto in Upto:
        orders.copy(upto=upto)
    orders.copy()
    for left in Objects:
        orders.copy(again=True)
        orders.delete(len(orders.copies) - 1, left)
        orders.delete(len(orders.copies) - 2, left, finished=left is Objects.NONE)
    return orders


def transactions(orders: LakePartition) -> LakePartition:
    """Aborted and committed ones, interleaved, over several segments, one undecided at the end."""
    orders.append("a0", "a1", producer_id=7, transactional=True).append("plain")
    orders.append("c0", producer_id=8, transactional=True).roll()
    orders.append("a2", producer_id=7, transactional=True, codec=3).roll()
    orders.append("other", producer_id=9).abort(7).append("behind").commit(8).roll()
    orders.append("again", producer_id=7, transactional=True).commit(7).abort(8)
    orders.append("b0", producer_id=8, transactional=True).abort(8).roll()
    orders.append("late", producer_id=11, transactional=True).append("above it").roll()
    orders.abort(11)
    orders.append("undecided", producer_id=12, transactional=True).append("unstable").roll()
    return orders.copy().commit(12)


def compaction(orders: LakePartition) -> LakePartition:
    """Holes inside batches, empty batches, and whole batches that are gone."""
    orders.thinned(1, 4, size=6).thinned(size=3).roll().gap(10).thinned(0, 2, size=9, codec=4)
    orders.roll().lead(3).thinned(size=5).roll().gap(1_000).batches(2).thinned(size=4).roll()
    return orders.copy()


def a_deleted_prefix(orders: LakePartition) -> LakePartition:
    """The log starts within a segment; those below are gone, or about to go."""
    orders.batches(3).roll().batches(3).roll().lead(2).batches(3).roll().copy()
    orders.delete_records(20)
    orders.delete(0, finished=True).delete(1, Objects.NO_MANIFEST)
    return orders.batches(2).roll().copy()


STORIES: dict[str, Story] = {
    each.__name__: each
    for each in (
        every_kind_of_record,
        an_unclean_election,
        two_unclean_elections,
        overlapping_copies,
        abandoned_copies,
        transactions,
        compaction,
        a_deleted_prefix,
    )
}


def tell_all(bucket: Bucket, *, topic_of: Callable[[str], str] = str) -> Bucket:
    """Fill a bucket with all stories, each as a topic of its own with its name."""
    for name, story in STORIES.items():
        story(bucket.partition(topic_of(name)))
    return bucket
