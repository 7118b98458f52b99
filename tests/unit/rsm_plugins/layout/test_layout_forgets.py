"""What a plugin of our layout remembers of a segment ends with the next copy of it."""

from pathlib import Path

import pytest

from rsm_plugins.api import RemoteResourceNotFoundError
from rsm_plugins.local_fs import LocalFsRemoteStorageManager
from rsm_plugins.segment import IndexType
from rsm_plugins.testing import copy, segment


@pytest.mark.parametrize("suffix", [".manifest", ".indexes"])
def test_a_read_after_a_copy_is_answered_by_the_store(tmp_path: Path, suffix: str) -> None:
    manager = LocalFsRemoteStorageManager()
    manager.configure({"dir": str(tmp_path)})
    copied = copy(manager, segment())
    manager.fetch_index(copied, IndexType.OFFSET).close()
    copy(manager, segment())
    [path] = tmp_path.rglob(f"*{suffix}")
    path.unlink()
    with pytest.raises(RemoteResourceNotFoundError):
        manager.fetch_index(copied, IndexType.OFFSET)
