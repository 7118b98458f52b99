from pathlib import Path

import pytest

from tests.support.tier.pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    made = Pair(tmp_path)
    made.log.fill(3, records=20)
    made.assign()
    made.log.expire_local()
    made.storage.calls.clear()  # also those that read the copies back
    assert made.log.local_start == 60
    return made
