"""Promises about failures: the class of each error, and that no call hangs."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from unittest import SkipTest

from rsm_plugins.api import (
    RemoteStorageError,
    RemoteStorageManager,
    RetriableRemoteStorageError,
)
from rsm_plugins.contract import expect
from rsm_plugins.contract.base import Promises
from rsm_plugins.contract.samples import large_log, segment_data
from rsm_plugins.segment import IndexType
from rsm_plugins.settings import PREFIX, Setting
from runtime.raised import described

_NONSENSE = "\x01 no value of anything"


class FailurePromises(Promises):
    """Promises about the errors of a plugin."""

    def test_an_unreachable_store_is_retriable_and_never_hangs(
        self, unreachable_manager: RemoteStorageManager
    ) -> None:
        """With a store that does not answer every call ends in time, with a retriable error."""
        metadata, manager = self.segment(), unreachable_manager
        calls = {
            "copy": lambda: manager.copy_log_segment_data(metadata, segment_data()),
            "fetch_log_segment": lambda: manager.fetch_log_segment(metadata, 0),
            "fetch_index": lambda: manager.fetch_index(metadata, IndexType.OFFSET),
            "delete": lambda: manager.delete_log_segment_data(metadata),
        }
        for name, call in calls.items():

            def check(name: str = name, call: Any = call) -> None:
                expect.fails(RetriableRemoteStorageError, call, f"{name} without a store")

            expect.together([check], deadline_s=self.deadline_s, what=f"{name} without a store")

    def test_a_store_that_refuses_to_write_fails_the_copy(
        self, refusing_manager: RemoteStorageManager
    ) -> None:
        """A store that refuses to write fails the copy."""
        log = large_log(self.large_segment_bytes)
        large = self.segment(2, size_bytes=len(log))
        for metadata, data, what in (
            (self.segment(1), segment_data(), "small"),
            (large, segment_data(log), "large"),
        ):
            expect.fails(
                RemoteStorageError,
                partial(refusing_manager.copy_log_segment_data, metadata, data),
                f"copy of a {what} segment to a store that refuses to write",
            )

    def test_wrong_settings_are_refused(self, manager: RemoteStorageManager) -> None:
        """Wrong settings are refused by `configure`, with the name of the setting."""
        cases = [(settings, "") for settings in self.wrong_settings]
        cases = cases or list(self._cases(manager))
        if not cases:
            raise SkipTest(
                "no wrong settings known: give wrong_settings, or SETTINGS in the plugin"
            )
        for settings, named in cases:
            plugin = type(manager)()
            what = f"configure with {dict(settings)!r}"
            try:
                plugin.configure(settings)
            except (ValueError, RemoteStorageError) as e:
                expect.that(bool(str(e)), f"{what}: {type(e).__name__} without a message")
                expect.that(named in str(e), f"{what}: the message does not name {named}: {e}")
                continue
            except Exception as e:  # any other error is the finding
                raise AssertionError(f"{what}: raised {described(e)}") from e
            plugin.close()
            raise AssertionError(f"{what}: was accepted")

    def _cases(self, manager: RemoteStorageManager) -> Iterator[tuple[Mapping[str, str], str]]:
        """Wrong settings from the plugin's list, each with a text that the message must have."""
        known: list[Setting] = list(getattr(manager, "SETTINGS", ()))
        valid = dict(self.settings)
        for setting in known:
            named = PREFIX + setting.name if valid else PREFIX
            if setting.required:
                yield {key: value for key, value in valid.items() if key != setting.name}, named
            if _refuses_nonsense(setting):
                yield {**valid, setting.name: _NONSENSE}, named


def _refuses_nonsense(setting: Setting) -> bool:
    try:
        setting.parse(_NONSENSE)
    except (ValueError, KeyError):
        return True
    return False
