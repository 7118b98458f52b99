"""The registered APIs, and what the head of each module says of its versions."""

import pkgutil
import re
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

import broker.handlers
from broker.handlers import fetch_versions, produce_versions
from broker.handlers.docs import handler_class
from broker.handlers.handler_table import APIS, SASL_APIS
from kafka_protocol.wire.api_keys import PRIVATE, ApiKey
from kafka_protocol.wire.codec import Message, request, response
from kafka_protocol.wire.schema import ArrayType, FieldType, StructType

SAME_FIELDS = "no new field; "
ALL = (*APIS, *SASL_APIS)
MODULES = [pytest.param(module, id=module.__name__.rpartition(".")[2]) for module in ALL]


def listed(module: ModuleType) -> dict[int, str]:
    """What the module's head says, by version."""
    assert module.__doc__ is not None
    _, _, versions = module.__doc__.partition("\nVersions")
    found = re.findall(r"^\* (\d+): (.+(?:\n  .+)*)", versions, re.MULTILINE)
    assert len({version for version, _ in found}) == len(found)
    return {int(version): text for version, text in found}


def layout(kind: FieldType, version: int) -> Any:
    """What stands on the wire for a type."""
    if isinstance(kind, ArrayType):
        return [layout(kind.element, version)]
    if isinstance(kind, StructType):
        return [
            (
                field.name,
                layout(field.type, version),
                version in field.nullable,
                field.tag if version in field.tagged else None,
            )
            for field in kind.fields
            if version in field.versions
        ]
    return kind


def is_changed(message: Message, version: int) -> bool:
    before, after = (
        (layout(message.struct, each), message.is_flexible(each)) for each in (version - 1, version)
    )
    return bool(before != after)


def test_every_api_of_the_package_is_registered_once() -> None:
    names = [module.name for module in pkgutil.iter_modules(broker.handlers.__path__)]
    modules = [import_module(f"broker.handlers.{name}") for name in names]
    made = {module.__name__ for module in modules if hasattr(module, "make")}
    assert sorted(module.__name__ for module in ALL) == sorted(made)
    keys = [handler_class(module).api_key for module in ALL]
    assert len(set(keys)) == len(keys)
    assert PRIVATE.isdisjoint(keys), "clients are told of requests of ours"


@pytest.mark.parametrize("module", MODULES)
def test_the_head_of_an_api_names_each_version_it_serves(module: ModuleType) -> None:
    handler = handler_class(module)
    versions = listed(module)
    assert list(versions) == list(range(handler.versions.first, handler.versions.last + 1))
    for version, text in versions.items():
        # Version 0 of Metadata is older than the first KIP.
        assert version == 0 or re.search(r"\((KIP|KAFKA)-\d+\)", text), text


@pytest.mark.parametrize("module", MODULES)
def test_the_head_of_an_api_says_which_versions_have_new_fields(module: ModuleType) -> None:
    handler = handler_class(module)
    said = {version for version, text in listed(module).items() if not text.startswith(SAME_FIELDS)}
    messages = (request(handler.api_key), response(handler.api_key))
    first, last = handler.versions
    changed = {v for v in range(first + 1, last + 1) if any(is_changed(m, v) for m in messages)}
    assert said == {first} | changed


@pytest.mark.parametrize(
    ("table", "key"), [(produce_versions, ApiKey.PRODUCE), (fetch_versions, ApiKey.FETCH)]
)
def test_the_first_flexible_version_is_that_of_the_schema(table: Any, key: ApiKey) -> None:
    assert table.FLEXIBLE == request(key).flexible_from == response(key).flexible_from
