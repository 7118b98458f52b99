"""Tests that are coroutine functions run: `tests/conftest.py` sees to it."""

import ast
import asyncio
from pathlib import Path

import pytest


class Reached(Exception):
    """The body of the test ran."""


@pytest.mark.xfail(raises=Reached, strict=True, reason="its body raises")
async def test_what_a_coroutine_test_raises_fails_it() -> None:
    await asyncio.sleep(0)
    raise Reached


class TestInAClass:
    @pytest.mark.parametrize("number", [7])
    @pytest.mark.xfail(raises=Reached, strict=True, reason="its body raises")
    async def test_a_method_gets_its_arguments(self, number: int) -> None:
        assert number == 7
        raise Reached


@pytest.mark.xfail(
    raises=pytest.PytestUnraisableExceptionWarning, strict=True, reason="not awaited"
)
def test_a_coroutine_that_nobody_awaits_fails_its_test() -> None:
    asyncio.sleep(0)  # type: ignore[unused-coroutine]


def test_a_unit_test_that_needs_a_loop_is_a_coroutine_function() -> None:
    nested = [
        f"{path.name}::{test.name}"
        for path in Path(__file__).parent.rglob("test_*.py")
        for test in ast.walk(ast.parse(path.read_text()))
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        if any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(test))
        if "asyncio.run(" in ast.unparse(test)
    ]
    assert nested == []
