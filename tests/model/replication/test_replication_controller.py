"""The model's controller decides as the production code does, whatever happens to brokers."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from metadata_topic.controller.alter_partition import ProposedIsr, alter_partition
from metadata_topic.controller.brokers import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
)
from metadata_topic.controller.directories import ReplicaId
from metadata_topic.controller.election_rules import ElectionRules
from metadata_topic.controller.elections import elect_leaders
from metadata_topic.image.image import ELR_VERSION
from metadata_topic.image.model import RECOVERED, RECOVERING
from metadata_topic.image.records import make
from tests.model.replication.controller import NOBODY, Committed, Controller, Request
from tests.model.replication.leader import bits, ids
from tests.model.replication.rules import Rules
from tests.support.samples.metadata import apply, cluster_of, registration_of

TOPIC = b"t" * 16
FIRST_LIFE = 5  # so that an older one is no -1, which says nothing

EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["fence", "unfence", "stop", "clean", "unclean", "elect"]),
            st.integers(0, 2),
        ),
        st.tuples(
            st.just("alter"),
            st.integers(0, 7),  # the ISR
            st.sampled_from([0, 0, 0, -1]),  # how old the leader epoch is
            st.sampled_from([0, 0, 0, -1]),  # and the partition epoch
            st.booleans(),  # recovered
            st.lists(st.sampled_from(["now", "now", "older", "unsaid"]), min_size=3, max_size=3),
        ),
    ),
    max_size=25,
)


class Both:
    """A cluster under the production code, and under the model's controller."""

    def __init__(self, replicas: int, min_isr: int, *, elr: bool) -> None:
        self.count = replicas
        self.rules = ElectionRules(min(min_isr, replicas))
        self.model = Controller(Rules(replicas=replicas, min_isr=min_isr, elr=elr, unclean=True))
        everybody = list(range(replicas))
        self.now = Committed(
            0, 1, 0, bits((*everybody,)), 0, NOBODY, False, (FIRST_LIFE,) * replicas,
            bits((*everybody,)),
        )  # fmt: skip
        self.image = apply(
            cluster_of(*everybody, features={ELR_VERSION: 1} if elr else {}),
            [
                make("TopicRecord", name="t", topic_id=TOPIC),
                make(
                    "PartitionRecord",
                    2,
                    partition_id=0,
                    topic_id=TOPIC,
                    replicas=everybody,
                    isr=everybody,
                    leader=0,
                    leader_epoch=1,
                    partition_epoch=0,
                    directories=[bytes([100 + one]) * 16 for one in everybody],
                ),
            ],
        )

    def make(self, name: str, *facts: Any) -> None:
        if name == "alter":
            self.alter(*facts)
        elif name == "elect":
            self.elect()
        elif facts[0] < self.count:
            self.change(name, facts[0])

    def change(self, name: str, one: int) -> None:
        now, model = self.now, self.model
        is_fenced = not now.unfenced >> one & 1
        said: dict[str, Any] = {
            "broker_id": one,
            "broker_epoch": self.image.brokers[one].epoch,
            "defaults": self.rules,
        }
        if name == "fence" and not is_fenced:
            self.must_be(model.fence(now, one), fence_broker(self.image, **said))
        elif name == "unfence" and is_fenced and not now.stopping >> one & 1:
            self.must_be(model.unfence(now, one), unfence_broker(self.image, **said))
        elif name == "stop" and now.active >> one & 1:
            self.must_be(model.stop(now, one), begin_controlled_shutdown(self.image, **said))
        elif name in ("clean", "unclean"):
            life, is_clean = now.lives[one] + 1, name == "clean"
            registration = replace(
                registration_of(one, life=life),
                previous_epoch=said["broker_epoch"] if is_clean else -1,
            )
            self.must_be(
                model.register(now, one, life, clean=is_clean, lost=False),
                register_broker(self.image, registration, defaults=self.rules),
            )

    def elect(self) -> None:
        """The preferred leader, or where nobody leads an unclean one."""
        now = self.now
        is_unclean = now.leader == NOBODY
        result = elect_leaders(
            self.image,
            election_type=int(is_unclean),
            asked=[("t", [0])],
            defaults=self.rules,
        )
        candidates = range(self.count) if is_unclean else [0]
        may = [then for one in candidates for then in self.model.elect(now, one)]
        self.must_be(may or [now], result)

    def alter(
        self, isr: int, older_leader: int, older: int, is_recovered: bool, said: list[str]
    ) -> None:
        now, leader = self.now, self.now.leader
        if leader == NOBODY:
            return
        isr = isr & bits((*range(self.count),)) | 1 << leader
        is_recovered = is_recovered or not now.recovering
        by = {"now": 0, "older": -1}
        lives = [now.lives[one] + by[said[one]] if said[one] in by else -1 for one in ids(isr)]
        epochs = [
            self.image.brokers[one].epoch + by[said[one]] if said[one] in by else -1
            for one in ids(isr)
        ]
        partition = self.image.topics_by_id[TOPIC].partitions[0]
        result = alter_partition(
            self.image,
            broker_id=leader,
            broker_epoch=self.image.brokers[leader].epoch,
            proposals=[
                ProposedIsr(
                    ReplicaId(TOPIC, 0),
                    partition.leader_epoch + older_leader,
                    partition.partition_epoch + older,
                    tuple(zip(ids(isr), epochs, strict=True)),
                    RECOVERED if is_recovered else RECOVERING,
                )
            ],
            defaults=self.rules,
        )
        by_replica = dict(zip(ids(isr), lives, strict=True))
        then = self.model.alter(
            now,
            Request(
                leader,
                now.lives[leader],
                now.leader_epoch + older_leader,
                isr,
                tuple(by_replica.get(one, -1) for one in range(self.count)),
                now.partition_epoch + older,
                is_recovered,
            ),
        )
        assert (then is None) == (result.response[0].error is not None)
        self.must_be([then or now], result)

    def must_be(self, may: Any, result: Any) -> None:
        """The production code elects in assignment order: it does one of what the model has."""
        self.image = apply(self.image, result.records)
        is_same = [then for then in may if _seen(then) == self.seen()]
        assert is_same, f"{self.seen()} is none of {[_seen(then) for then in may]}"
        self.now = is_same[0]

    def seen(self) -> tuple[Any, ...]:
        one, brokers = self.image.topics_by_id[TOPIC].partitions[0], self.image.brokers.values()
        return (
            one.leader,
            one.leader_epoch,
            one.partition_epoch,
            bits(one.isr),
            bits(one.elr),
            *(one.last_known_elr or (NOBODY,)),
            one.leader_recovery_state == RECOVERING,
            bits(tuple(it.id for it in brokers if not it.fenced)),
            bits(tuple(it.id for it in brokers if it.in_controlled_shutdown)),
        )


def _seen(now: Committed) -> tuple[Any, ...]:
    return (*now[:7], now.unfenced, now.stopping)


@given(st.integers(2, 3), st.integers(1, 3), st.booleans(), EVENTS)
def test_production_controller_decides_as_the_model(
    replicas: int, min_isr: int, elr: bool, events: list[tuple[Any, ...]]
) -> None:
    both = Both(replicas, min_isr, elr=elr)
    for event in events:
        both.make(*event)
