"""Names that plugin authors and users' files have used since before 1.0."""

import importlib
import sys

import pytest

from rsm_plugins.loader import OLD_NAMES, SHIPPED, load_storage_manager

OLD_MODULES = {
    "rsm_plugins.layout_manager": "rsm_plugins.layout.manager",
    "rsm_plugins.object_layout": "rsm_plugins.layout.objects",
    "rsm_plugins.object_store": "rsm_plugins.layout.store",
    "rsm_plugins.piece_stream": "rsm_plugins.layout.piece_stream",
    "rsm_plugins.fsspec_store": "rsm_plugins.fsspec.plugin",
}


@pytest.mark.parametrize("old", OLD_MODULES)
def test_an_old_module_warns_and_gives_the_same_objects(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=OLD_MODULES[old]):
        found = importlib.import_module(old)
    new = importlib.import_module(OLD_MODULES[old])
    assert found.__all__
    for name in found.__all__:
        assert getattr(found, name) is getattr(new, name)


@pytest.mark.parametrize("name", [*SHIPPED, *OLD_NAMES])
def test_a_class_name_of_a_users_file_is_loaded_without_a_warning(name: str) -> None:
    assert type(load_storage_manager(name)).__name__ == name.partition(":")[2]
