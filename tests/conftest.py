"""Fixtures that several kinds of tests share, and the loop of coroutine tests."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from runtime.log_context import limited

if TYPE_CHECKING:
    from tests.support.stores.hdfs import Hdfs
    from tests.support.stores.s3 import S3Endpoint


pytest.register_assert_rewrite("tests.support", "rlmm.testing")

COROUTINE_SECONDS_MAX = 60
"""A coroutine test that waits for what never comes fails after this time, or its `patience`."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    unhandled: list[dict[str, Any]] = []
    patience = pyfuncitem.get_closest_marker("patience")
    seconds_max = patience.kwargs["seconds"] if patience else COROUTINE_SECONDS_MAX

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unhandled.append(context)
        loop.default_exception_handler(context)

    async def within_its_time() -> None:
        asyncio.get_running_loop().set_exception_handler(note)
        async with asyncio.timeout(seconds_max) as limit:
            await test(**arguments)
        # Who waits for a cancellation takes that of the time limit for it.
        assert not limit.expired(), f"it hung for {seconds_max} s"
        assert not unhandled, "a callback or a task of the loop failed"

    asyncio.run(within_its_time())
    return True


def pytest_runtest_setup() -> None:
    """Log the first line of each subject again: a line that was left out would fail a test."""
    limited.forget()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse tests in an order that differs from one worker to the next."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        if isinstance(mark.args[1], set | frozenset):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: parametrized over a set")


def pytest_configure(config: pytest.Config) -> None:
    from tests.support import rounds, workers  # after the line above
    from tests.support.samples import golden_files

    if not hasattr(config, "workerinput"):
        golden_files.unpack()
    rounds.use_hypothesis_profile()
    workers.register(config)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Endpoint]":
    """A real S3 endpoint, started for the first test that asks; take a bucket of your own."""
    from tests.support.stores.s3 import running_s3  # boto3 loads slowly, most tests need none

    with running_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Hdfs]":
    """A real HDFS, started for the first test that asks; take a root of your own."""
    from tests.support.stores.hdfs import running_hdfs, why_not  # few tests need it

    reason = why_not()
    if reason:
        pytest.skip(reason)
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoint:
        yield endpoint
