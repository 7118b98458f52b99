"""A table's name that its catalog cannot have is refused in one line that says what to give."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from pipeline.errors import OptionError
from pipeline.jobs.iceberg_catalog import open_iceberg

SCHEMA = pa.schema([("partition", pa.int32()), ("timestamp", pa.timestamp("us", "UTC"))])


@pytest.fixture(autouse=True)
def _catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog without namespaces within namespaces."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())  # it was read at the import


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("lake.raw.sea.level-v2_eu", "lake.raw.sea_level-v2_eu"),
        ("lake.raw.a.b.c", "lake.raw.a_b_c"),
    ],
)
def test_a_name_with_too_many_dots_names_one_without(name: str, instead: str) -> None:
    with pytest.raises(OptionError) as refused:
        open_iceberg(name, "sea.level-v2_eu", SCHEMA)
    told = str(refused.value)
    assert f"--iceberg={name}: " in told
    assert told.endswith(f"--iceberg={instead}")
    assert "\n" not in told


@pytest.mark.parametrize("name", ["lake", "lake.raw", "lake..t", "lake.raw."])
def test_a_name_that_lacks_a_part_says_which_parts_there_are(name: str) -> None:
    with pytest.raises(OptionError, match=r"give CATALOG\.NAMESPACE\.TABLE"):
        open_iceberg(name, "t", SCHEMA)
