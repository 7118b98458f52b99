import pytest

from rsm_plugins.loader import JAVA_COUNTERPARTS, SHIPPED, load_storage_manager, why_no_class_name
from rsm_plugins.local_fs import LocalFsRemoteStorageManager


@pytest.mark.parametrize(
    "name",
    [
        "rsm_plugins.local_fs:LocalFsRemoteStorageManager",
        "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    ],
)
def test_our_own_and_kafkas_name_load_the_directory_plugin(name: str) -> None:
    assert isinstance(load_storage_manager(name), LocalFsRemoteStorageManager)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_plugins_of_this_project_are_loaded(name: str) -> None:
    assert type(load_storage_manager(name)).__name__ == name.partition(":")[2]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "rsm_plugins.local_fs",
        "rsm_plugins.nowhere:Class",
        "rsm_plugins.local_fs:Nothing",
        "rsm_plugins.local_fs:object_layout",
        "rsm_plugins.layout.objects:Manifest",
        "builtins:dict",
        "os;import evil:X",
    ],
)
def test_anything_else_is_an_error_that_names_key_and_value(name: str) -> None:
    with pytest.raises(ValueError, match=r"remote\.log\.storage\.manager\.class\.name") as error:
        load_storage_manager(name)
    assert name in str(error.value)


def test_a_module_that_we_do_not_have_names_those_that_we_have() -> None:
    name = "rsm_plugins.fsspec_store:FsspecRemoteStorageManager"
    wanted = "No module named 'rsm_plugins.fsspec_store'; ours are .*rsm_plugins.fsspec:Fsspec"
    with pytest.raises(ValueError, match=wanted):
        load_storage_manager(name)


def test_a_foreign_java_name_is_told_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="Java class cannot be loaded; allowed is"):
        load_storage_manager("io.aiven.kafka.tieredstorage.RemoteStorageManager")


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
