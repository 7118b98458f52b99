"""The S3 plugin copies a segment while one answer is lost: whole, and nothing is left beside."""

import pytest

from rsm_plugins.s3.plugin import S3RemoteStorageManager
from rsm_plugins.testing import copy, read, segment, segment_data
from tests.support.stores.s3 import CREDENTIALS, S3Endpoint
from tests.support.stores.s3_faults import Fault, Kind, Rule
from tests.support.stores.s3_proxy import S3Proxy
from tests.support.stores.s3_tier import S3Tier

LOG = b"twelve mebibytes" * (12 << 16)
"""More than two parts."""


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.ERROR_IN_200])
@pytest.mark.parametrize(
    "kind", [Kind.PUT_OBJECT, Kind.CREATE_UPLOAD, Kind.UPLOAD_PART, Kind.COMPLETE_UPLOAD]
)
def test_a_copy_leaves_its_three_objects_and_no_open_upload(
    s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch, kind: Kind, fault: Fault
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with S3Proxy(s3.url, seed=1) as proxy:
        tier = S3Tier(s3, proxy.url)
        settings = tier.settings(upload_part_size_bytes=str(5 << 20))
        plugin = S3RemoteStorageManager()
        plugin.configure(
            {
                key.removeprefix("rsm.config."): value
                for key, value in settings.items()
                if key.startswith("rsm.config.")
            }
        )
        try:
            proxy.inject(Rule(fault, kinds=frozenset({kind}), times=1))
            copied = copy(plugin, segment(size_bytes=len(LOG)), segment_data(LOG))
            assert read(plugin.fetch_log_segment(copied, 0)) == LOG
            assert sorted(key.rpartition(".")[2] for key in tier.listing()) == [
                "indexes",
                "log",
                "manifest",
            ]
            plugin.delete_log_segment_data(copied)
            assert tier.listing() == {}
        finally:
            plugin.close()
