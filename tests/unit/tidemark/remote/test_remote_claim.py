"""What `tidemark remote claim` makes of the store's claim and of the numbers in the files."""

from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from rlm.maintenance.claim import validate
from rlm.maintenance.incarnation import FILE_NAME, Counter, dump, parse
from rsm_plugins.layout.claim_object import claim_key
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from runtime.disk import Disk
from tidemark.remote.claim import Comparison, compare, take

BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def compared(found: int | None, local: Counter, *, damaged: str = "") -> Comparison:
    return Comparison("c", 1, found, damaged, local, highest_read=40, now_ms=100)


@pytest.mark.parametrize("local", [Counter(0, None), Counter(30, 20, (10,)), Counter(30, 20)])
@pytest.mark.parametrize("found", [25, 50])
def test_after_the_command_the_claim_that_it_found_is_ones_own(local: Counter, found: int) -> None:
    wanted = compared(found, local).wanted
    assert wanted.number == max(found, 40)
    assert validate(found, wanted) == ""
    assert validate(51, wanted)


def test_after_the_command_a_later_claim_of_the_other_machine_is_unhealthy() -> None:
    wanted = compared(25, Counter(30, 20)).wanted
    assert validate(26, wanted), "its clock is behind"
    of_a_damaged_claim = compared(None, Counter(30, 20), damaged="cut").wanted
    assert validate(None, of_a_damaged_claim) == ""
    assert validate(26, of_a_damaged_claim)


def test_after_the_command_a_store_that_holds_no_claim_is_a_new_one() -> None:
    local = Counter(30, 20, (10,))
    asked = compared(None, local)
    assert asked.is_missing
    assert validate(None, asked.wanted) == ""
    assert validate(asked.wanted.claimed, local), "the claim of a new store is none of before"
    assert not compared(None, local, damaged="cut").is_missing
    assert not compared(None, Counter(30, 20, (0,))).is_missing, "none was written"
    assert not compared(25, local).is_missing


def test_without_claim_and_counter_a_number_is_above_an_older_copys_claim() -> None:
    wanted = compared(None, Counter(0, None), damaged="cut").wanted
    assert validate(wanted.claimed, Counter(95, 95)), "a renewal's, which no record has"


def test_a_damaged_claim_is_replaced_and_an_older_copy_is_then_unhealthy(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    config, _ = BrokerConfig.load({**BROKER, "log.dirs": str(directory)})
    older, local = Counter(20, 20), Counter(31, 30, (20,))
    (directory / FILE_NAME).write_bytes(dump(local))
    storage = LocalFsRemoteStorageManager()
    storage.configure({"dir": str(directory / "store")})
    storage.write_claim("c", 1, 30)
    path = directory / "store" / claim_key("c", 1)
    path.write_bytes(path.read_bytes()[:20])
    asked = compare(config, "c", storage, Disk(), now_ms=100)
    assert asked.reason
    kept = take(config, asked, storage, Disk())
    assert kept is not None
    assert parse(kept.read_bytes()) == local
    found, noted = storage.read_claim("c", 1), parse((directory / FILE_NAME).read_bytes())
    assert noted is not None
    assert validate(found, noted) == ""
    assert validate(found, older)
    assert validate(found, local), "two machines whose claim was damaged are still told apart"
