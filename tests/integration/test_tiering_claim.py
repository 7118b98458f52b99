"""Directories of an earlier day, clones, and clusters that share a store: real brokers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rlm.maintenance.incarnation import FILE_NAME as INCARNATION
from rsm_plugins.layout.claim_object import dump_claim
from tests.support.brokers.claims import claim_files, older_copy_reason
from tests.support.brokers.clients import produce, read_all
from tests.support.brokers.files import contents, copy_as_it_changes
from tests.support.brokers.process import LOCAL_FS, BrokerProcess, until
from tests.support.brokers.tiered_partition import TIERED, fill, reasons
from tests.support.brokers.tiered_topics import create, delete_records, delete_topic
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_faults import DELETES, READS, WRITES, Fault, Rule
from tests.support.stores.s3_proxy import S3Proxy
from tests.support.stores.s3_tier import S3Tier

MakeBroker = Callable[..., BrokerProcess]
CLASS = "remote.log.storage.manager.class.name"


def store_of(broker: BrokerProcess) -> dict[str, bytes]:
    """Every object, by its path."""
    found = contents(broker.remote_directory)
    return {path: data for path, data in found.items() if ".copying/" not in path}


def more(broker: BrokerProcess, count: int = 30) -> None:
    produce(broker, "orders", [(None, b"more" + bytes(100_000)) for _ in range(count)])


def copied_aside(broker: BrokerProcess) -> Path:
    aside = broker.directory / "aside"
    copy_as_it_changes(broker.log_directory, aside)
    return aside


def put_back(broker: BrokerProcess, aside: Path) -> None:
    shutil.rmtree(broker.log_directory)
    shutil.copytree(aside, broker.log_directory)


def continues_copying_and_deleting(broker: BrokerProcess) -> None:
    before = set(broker.remote_segments("orders"))
    more(broker)
    until(lambda: set(broker.remote_segments("orders")) - before, "copying continues")
    delete_records(broker, "orders", 25)
    until(lambda: not set(before) <= set(broker.remote_segments("orders")), "a segment is deleted")


def test_directories_restored_from_a_copy_write_nothing_until_remote_claim(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True).start()
    count = fill(broker)
    broker.terminate()
    aside = copied_aside(broker)
    broker.start()
    continues_copying_and_deleting(broker)
    broker.kill()
    put_back(broker, aside)
    before = store_of(broker)
    broker.start()
    assert "tidemark remote claim" in older_copy_reason(broker)
    produce(broker, "orders", [(None, bytes(100_000)) for _ in range(30)])
    closed = len(broker.local_segments("orders"))
    assert closed > 2, "local work continues"
    delete_records(broker, "orders", 35)
    until(lambda: broker.log_text().count("older copy") > 0, "the log names it")
    config = str(broker.config_file)
    refused = broker.command("remote", "claim", "-c", config, "--yes")
    assert refused.returncode == 1
    assert "locked by another process" in refused.stderr
    audit = ("audit", "-c", config, "--delete-orphans", "--yes", "--copy-max-ms", "1")
    kept = broker.command("remote", *audit, "--bootstrap-server", broker.bootstrap)
    assert kept.returncode == 1
    assert "nothing is deleted: the store's claim" in kept.stdout
    assert "the orphans may be its data" in kept.stdout
    broker.kill_tier()
    until(lambda: broker.log_text().count("older copy") > 1, "a tier's restart changes nothing")
    assert store_of(broker) == before
    broker.terminate()
    assert store_of(broker) == before
    asked = broker.command("remote", "claim", "-c", config)
    assert asked.returncode == 2, "it asks, and nobody answers"
    assert "last claim of these files" in asked.stdout
    done = broker.command("remote", "claim", "-c", config, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to undo it before that: mv " in done.stdout
    assert store_of(broker) == before
    assert len(list(broker.log_directory.glob("tier-incarnation.before-claim-*"))) == 1
    broker.start()
    until(lambda: not any("claim" in each for each in reasons(broker)), "the claim is taken")
    until(lambda: len(broker.local_segments("orders")) == 1, "copying continues")
    assert len(read_all(broker, "orders")) == count + 30 - 35
    broker.terminate()
    again = broker.command("remote", "claim", "-c", config)
    assert again.returncode == 0
    assert "nothing to do" in again.stdout


@pytest.mark.parametrize("place", ["metadata.log.dir", "log.dirs"])
def test_an_incarnation_of_a_prerelease_ends_the_start_and_takes_no_claim(
    make_broker: MakeBroker, tmp_path: Path, place: str
) -> None:
    broker = make_broker(tiered=True, settings={"metadata.log.dir": str(tmp_path / "meta")}).start()
    until(lambda: store_of(broker), "the claim is taken")
    assert broker.terminate() == 0
    before = store_of(broker)
    (tmp_path / "meta" / INCARNATION).unlink()
    directory = tmp_path / "meta" if place == "metadata.log.dir" else broker.log_directory
    (directory / INCARNATION).write_bytes(b"17\n")
    said = f"{directory / INCARNATION} is "
    started = broker.start_to_end()
    assert started.returncode == 1
    claim = broker.command("remote", "claim", "-c", str(broker.config_file), "--yes")
    assert claim.returncode == 1
    for told in (broker.log_text() + started.stderr, claim.stderr):
        assert said in told
        assert "before 0.1.0" in told
        assert "Traceback" not in told
    assert "nothing to do" not in claim.stdout
    assert store_of(broker) == before


def test_a_copy_made_while_the_broker_ran_is_found_out_after_a_clean_stop(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True).start()
    fill(broker)
    aside = copied_aside(broker)
    continues_copying_and_deleting(broker)
    assert broker.terminate() == 0
    put_back(broker, aside)
    before = store_of(broker)
    broker.start()
    older_copy_reason(broker)
    assert store_of(broker) == before


def test_a_copy_older_than_the_last_claim_is_found_after_a_kill(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(tiered=True)
    broker.settings["tidemark.remote.claim.interval.ms"] = "200"
    broker.start()
    fill(broker)
    aside = copied_aside(broker)
    [claim] = claim_files(broker.remote_directory)
    first = claim.read_bytes()
    until(lambda: claim.read_bytes() != first, "the claim is taken again")
    continues_copying_and_deleting(broker)
    broker.kill()
    put_back(broker, aside)
    before = store_of(broker)
    broker.start()
    older_copy_reason(broker)
    assert store_of(broker) == before


def test_of_a_machine_and_its_clone_the_second_to_start_is_unhealthy(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    machine = make_broker(tiered=True).start()
    fill(machine)
    machine.terminate()
    clone = make_broker(
        "clone",
        tiered=True,
        store={CLASS: LOCAL_FS, "rsm.config.dir": str(machine.remote_directory)},
    )
    shutil.copytree(machine.log_directory, clone.log_directory)
    machine.start()
    until(lambda: reasons(machine) == [], "the machine is green")
    before = store_of(machine)
    clone.settings["controller.quorum.voters"] = f"1@127.0.0.1:{clone.controller_port}"
    clone.start()
    older_copy_reason(clone)
    more(clone)
    assert reasons(machine) == []
    clone.terminate()
    assert store_of(machine) == before


@pytest.mark.long(seconds=15)
def test_clusters_that_share_a_store_do_not_disturb_each_other(make_broker: MakeBroker) -> None:
    one = make_broker(tiered=True).start()
    shared = {CLASS: LOCAL_FS, "rsm.config.dir": str(one.remote_directory)}
    other = make_broker("other", tiered=True, store=shared).start()
    for broker in (one, other):
        create(broker, "orders", **TIERED)
        more(broker, 45)
        until(lambda b=broker: len(b.local_segments("orders")) == 1, "all is in the store")  # type: ignore[misc]
    for _ in range(2):
        one.terminate()
        other.terminate()
        other.start()
        one.start()
        until(lambda: reasons(one) == reasons(other) == [], "both are green")
    assert len(claim_files(one.remote_directory)) == 2
    assert len(read_all(one, "orders")) == len(read_all(other, "orders")) == 45


@pytest.mark.slow
def test_a_broker_serves_while_its_store_hangs_and_claims_once_it_answers(
    make_broker: MakeBroker, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with S3Proxy(s3.url, seed=1, pause_s=0.3) as proxy:
        tier = S3Tier(s3, proxy.url)
        store = tier.settings(read_timeout_ms="20000", api_call_timeout_ms="60000")
        broker = make_broker(tiered=True, store=store)
        proxy.inject(Rule(Fault.HANG, READS | WRITES | DELETES))
        broker.start()
        create(broker, "local")
        create(broker, "orders", **TIERED)
        produce(broker, "local", [(None, b"here")])
        produce(broker, "orders", [(None, b"%d" % n + bytes(100_000)) for n in range(45)])
        assert len(read_all(broker, "local")) == 1
        assert len(read_all(broker, "orders")) == 45
        waits = "the store has not answered yet"
        until(
            lambda: any(waits in each for each in reasons(broker)), "health says what it waits for"
        )
        barriers = "tidemark_remote_metadata_records"
        until(lambda: broker.metric(barriers, outcome="read"), "partitions are owned without it")
        assert s3.keys(tier.bucket) == {}
        proxy.calm()
        until(lambda: any("/claims/" in key for key in s3.keys(tier.bucket)), "the claim is there")
        until(lambda: len(tier.segments("orders")) >= 4, "copying begins")
        until(lambda: reasons(broker) == [], "health is green")


@pytest.mark.slow
def test_a_deletion_ends_with_its_call_if_another_machine_takes_the_claim(
    make_broker: MakeBroker, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with S3Proxy(s3.url, seed=1, pause_s=0.5) as proxy:
        tier = S3Tier(s3, proxy.url)
        broker = make_broker(tiered=True, store=tier.settings())
        broker.settings["tidemark.remote.claim.interval.ms"] = "200"
        broker.start()
        create(broker, "orders", **TIERED)
        produce(broker, "orders", [(None, bytes(100_000)) for _ in range(90)])
        until(lambda: len(broker.local_segments("orders")) == 1, "all is in the store")
        segments = len(tier.segments("orders"))
        assert segments >= 8
        proxy.inject(Rule(Fault.SLOW_FIRST_BYTE, DELETES))
        delete_topic(broker, "orders")
        until(lambda: len(tier.segments("orders")) < segments, "the deletion has begun")
        [key] = [key for key in s3.keys(tier.bucket) if "/claims/" in key]
        later = dump_claim(key.split("/")[-2], 1, 2**62)

        def other_machine_is_found() -> bool:
            """It claims again and again, too: between reading and writing ours may hide it."""
            s3.client().put_object(Bucket=tier.bucket, Key=key, Body=later)
            return any("older copy" in each for each in reasons(broker))

        until(other_machine_is_found, "health says that the directories are an older copy")
        left = tier.segments("orders")
        assert left, "the deletion was still running"
        broker.kill_tier()
        until(lambda: broker.log_text().count("older copy") > 1, "the next tier finds it, too")
        broker.terminate()
        # The call that ran then may have ended after `left` was listed, and is the last one.
        assert tier.segments("orders") in (left, left[1:])


@pytest.mark.long(seconds=60)
def test_an_unmounted_store_gets_no_copies_and_recovers_without_a_restart(
    make_broker: MakeBroker,
) -> None:
    """Only whole processes show it: a start makes no root, status, consume and the command agree.

    The directory is moved away, with an empty one, or none, in its place.
    """
    broker = make_broker(tiered=True)
    broker.settings["tidemark.remote.claim.interval.ms"] = "500"
    broker.start()
    count = fill(broker)
    store, away = broker.remote_directory, broker.remote_directory.with_name("unmounted")

    def is_named() -> bool:
        return any("is the store mounted" in each for each in reasons(broker))

    def is_well() -> bool:
        return reasons(broker) == []

    store.rename(away)
    store.mkdir()
    until(is_named, "a broker that runs finds it")
    more(broker)
    store.rmdir()
    away.rename(store)
    until(is_well, "mounted again")
    broker.kill()
    store.rename(away)
    broker.start()
    until(lambda: any("holds no claim" in each for each in reasons(broker)), "a start finds it")
    more(broker)
    place = ("--bootstrap-server", broker.bootstrap)
    waited = broker.command("consume", "orders", "-n", "1", "--timeout-ms", "9000", *place)
    assert waited.returncode != 0
    assert "orders-0: its leader answers for offset 0 with code 56" in waited.stderr
    assert not store.exists(), "nothing is made where the mount point is gone"
    away.rename(store)
    until(is_well, "mounted again", deadline_s=40)
    assert len(read_all(broker, "orders")) == count + 60
    broker.kill()
    shutil.rmtree(store)
    config = str(broker.config_file)
    done = broker.command("remote", "claim", "-c", config, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this broker has written one" in done.stdout
    assert "is taken for a new one" in done.stdout
    broker.start()
    until(lambda: claim_files(store), "a store that was replaced is claimed")
    until(lambda: not is_named(), "and it is named no more")
