"""Real brokers and tiers with SIGKILL before and after each step of the rows "claim" and "leader
change" of docs/tiering.md §3, on a lost chain and a lost log start."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from rlm.maintenance.incarnation import FILE_NAME, Counter, dump, parse
from rsm_plugins.layout.claim_object import parse_claim
from tests.support.brokers.claims import claim_files, older_copy_reason
from tests.support.brokers.clients import end_offsets, produce, read_all
from tests.support.brokers.kill_points import CLASS_NAME, ON_LOST_FILES, ORDER_KEY, POINTS, order
from tests.support.brokers.process import BrokerProcess, until
from tests.support.brokers.tiered_files import (
    CHAIN,
    LOG_STARTS,
    directory_of,
    filled_over_epochs,
    objects,
)
from tests.support.brokers.tiered_partition import fill, reasons
from tests.support.quorum.broker_beside import ALONE_OR_BESIDE
from tests.support.rounds import IS_PROVING

MakeBroker = Callable[..., BrokerProcess]
HOUR_MS = 3_600_000


def store_settings(directory: Path, order_file: Path) -> dict[str, str]:
    return {
        "remote.log.storage.manager.class.name": CLASS_NAME,
        "rsm.config.dir": str(directory),
        ORDER_KEY: str(order_file),
    }


def counter_of(broker: BrokerProcess) -> Counter:
    counter = parse((broker.log_directory / FILE_NAME).read_bytes())
    assert counter is not None
    return counter


def claim_in_store(broker: BrokerProcess) -> int:
    [path] = claim_files(broker.remote_directory)
    cluster_id = path.parent.name
    return parse_claim(path.read_bytes(), cluster_id, broker.node_id)


def broker_dies(broker: BrokerProcess) -> None:
    """Of the kill that was ordered, on a start that finds neither chain nor log start."""
    broker.kill()
    (directory_of(broker) / CHAIN).unlink()
    (broker.log_directory / LOG_STARTS).unlink()
    broker.start(wait=False)
    process = broker.process
    assert process is not None
    assert process.wait(60) == -9
    broker.start()


def tier_dies(broker: BrokerProcess, order_file: Path) -> None:
    """The next tier dies of the kill that was ordered, the broker starts another."""
    broker.kill_tier()
    until(lambda: not order_file.exists(), "the kill that was ordered")


def is_served_from_its_start(broker: BrokerProcess) -> bool:
    """Whether it is known where the log starts; librdkafka may take the end for it before that."""
    try:
        return end_offsets(broker, "orders")[0] == 0
    except KafkaException:
        return False


@pytest.mark.slow
@pytest.mark.rounds(seconds=120 if IS_PROVING else 60)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ALONE_OR_BESIDE["params"], ids=ALONE_OR_BESIDE["ids"])
def test_killed_at_any_point_of_claim_and_leader_change_nothing_is_lost(
    make_broker: MakeBroker, kind: type[BrokerProcess], tmp_path: Path
) -> None:
    order_file, remote = tmp_path / "order", tmp_path / "broker" / "remote-tier"
    store = store_settings(remote, order_file)
    broker = make_broker(kind=kind, tiered=True, store=store).start()
    count = filled_over_epochs(broker)
    segments = {path for path in objects(broker) if "claims" not in path.parts}
    kills = list(enumerate((point, is_done) for point in POINTS for is_done in (False, True)))
    if not IS_PROVING:  # each point once: before or after it, broker or tier in turn
        kills = [kill for kill in kills if kill[0] % 8 in (0, 3, 5, 6)]
    for number, (point, is_done) in kills:
        is_brokers = point in ON_LOST_FILES or number % 4 in (0, 3)
        print(f"{'broker' if is_brokers else 'tier'} {'after' if is_done else 'before'} {point}")
        counter, claim = counter_of(broker).number, claim_in_store(broker)
        order(order_file, point, is_done=is_done, victim="broker" if is_brokers else "tier")
        broker_dies(broker) if is_brokers else tier_dies(broker, order_file)
        until(lambda old=claim: claim_in_store(broker) > old, "the claim is taken again")  # type: ignore[misc]
        until(lambda: is_served_from_its_start(broker), "the log start is known")
        until(lambda: reasons(broker) == [], "health is green")
        assert counter_of(broker).number > counter
        assert segments <= objects(broker)
        found = read_all(broker, "orders")
        assert [offset for offset, _, _ in found] == list(range(count))
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(25)])
    until(lambda: len(broker.local_segments("orders")) == 1, "copying continues, and local expiry")
    assert segments <= objects(broker)
    assert len(read_all(broker, "orders")) == count + 25


def test_a_copy_killed_before_its_claim_is_unhealthy_beside_the_machine(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """Its clock is ahead, so what it noted is above all that the machine claims meanwhile."""
    order_file, remote = tmp_path / "order", tmp_path / "machine" / "remote-tier"
    machine = make_broker("machine", tiered=True).start()
    fill(machine)
    assert machine.terminate() == 0
    copy = make_broker("copy", tiered=True, store=store_settings(remote, order_file))
    shutil.copytree(machine.log_directory, copy.log_directory)
    ahead = counter_of(copy)
    ahead = ahead._replace(number=ahead.number + HOUR_MS)
    (copy.log_directory / FILE_NAME).write_bytes(dump(ahead))
    order(order_file, "note claim", is_done=True, victim="broker")
    copy.start(wait=False)
    process = copy.process
    assert process is not None
    assert process.wait(60) == -9
    noted = counter_of(copy).claimed
    assert noted is not None
    machine.start()
    until(lambda: reasons(machine) == [], "the machine is green")
    assert claim_in_store(machine) < noted
    before = objects(machine)
    copy.start()
    older_copy_reason(copy)
    produce(copy, "orders", [(None, bytes(100_000)) for _ in range(30)])
    until(lambda: len(copy.local_segments("orders")) > 2, "local work continues")
    assert reasons(machine) == []
    assert objects(machine) == before
