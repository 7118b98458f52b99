"""Which stores count as one: by class and place, and never by a secret."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rsm_plugins.api import RemoteStorageManager
from rsm_plugins.fsspec import FsspecRemoteStorageManager
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.place import StoreIdentity, identity_of
from rsm_plugins.s3 import S3RemoteStorageManager
from rsm_plugins.settings import Setting, text


def local(directory: Path, **more: str) -> StoreIdentity:
    configs = {"dir": str(directory), **more}
    plugin = LocalFsRemoteStorageManager()
    plugin.configure(configs)
    return identity_of(plugin, configs)


def test_one_directory_is_one_store_by_whatever_path_and_settings(tmp_path: Path) -> None:
    store, link = tmp_path / "store", tmp_path / "link"
    store.mkdir()
    link.symlink_to(store)
    assert local(store) == local(link, **{"check.writable": "false", "node.id": "2"})
    assert local(store) != local(tmp_path / "other")
    name, place = local(store)
    assert name == "rsm_plugins.local_fs:LocalFsRemoteStorageManager"
    assert len(place) == 32


def s3(monkeypatch: pytest.MonkeyPatch, **settings: str) -> StoreIdentity:
    monkeypatch.setattr("rsm_plugins.s3.client.probe", lambda _options: None)
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    configs |= {"region": "eu-west-1"}
    plugin = S3RemoteStorageManager()
    plugin.configure(configs)
    return identity_of(plugin, configs)


def test_a_bucket_is_a_store_by_endpoint_name_and_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("boto3")
    one = s3(monkeypatch, bucket="b", prefix="p")
    assert one == s3(monkeypatch, bucket="b", prefix="/p/", upload_concurrency="2")
    assert one != s3(monkeypatch, bucket="b", prefix="q")
    assert one != s3(monkeypatch, bucket="c", prefix="p")
    assert one != s3(monkeypatch, bucket="b", prefix="p", endpoint_url="http://localhost:4566")


def test_a_url_is_a_store_without_its_user_and_password() -> None:
    pytest.importorskip("fsspec")

    def by_url(url: str) -> StoreIdentity:
        plugin = FsspecRemoteStorageManager()
        plugin.configure({"url": url})
        return identity_of(plugin, {"url": url})

    assert by_url("memory://me:secret@store/a/") == by_url("memory://store/a")
    assert by_url("memory://store/a") != by_url("memory://store/b")


class Foreign(LocalFsRemoteStorageManager):
    """A plugin that does not name its place."""

    SETTINGS: ClassVar[Sequence[Setting]] = (
        text("dir", "where", required=True),
        text("password", "who", secret=True),
    )
    store_place: Any = None

    def configure(self, configs: Mapping[str, str]) -> None:
        """Connect to nothing."""


class ForeignSilent(Foreign):
    """One that declares no settings, too."""

    SETTINGS: ClassVar[Sequence[Setting]] = ()


def foreign(cls: type[RemoteStorageManager], **configs: str) -> StoreIdentity:
    return identity_of(cls(), configs)


def test_public_settings_are_the_place_of_a_plugin_that_names_none() -> None:
    one = foreign(Foreign, dir="/a", password="x")
    assert one == foreign(Foreign, dir="/a", password="y", **{"node.id": "7"})
    assert one != foreign(Foreign, dir="/b", password="x")
    assert one.place_hash != foreign(ForeignSilent, dir="/a").place_hash
    assert foreign(ForeignSilent, dir="/a") == foreign(ForeignSilent, dir="/b")
