"""Names of Java's plugins are refused by a line that names the ones there are."""

import pytest

from rsm_plugins.loader import JAVA_COUNTERPARTS, SHIPPED, why_no_class_name


@pytest.mark.parametrize(
    "name",
    ["io.aiven.kafka.tieredstorage.RemoteStorageManager", "com.example.Store", "/opt/store.jar"],
)
def test_a_class_of_another_kind_names_the_plugins_there_are(name: str) -> None:
    told = why_no_class_name(name)
    assert told is not None
    assert "of a Python class" in told
    assert [one for one in SHIPPED if one not in told] == []


@pytest.mark.parametrize("name", [*SHIPPED, *JAVA_COUNTERPARTS, "mine:Store"])
def test_names_that_a_plugin_can_have_are_not_refused(name: str) -> None:
    assert why_no_class_name(name) is None
