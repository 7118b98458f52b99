"""A soak comes to its end: clients leave when told to, and each step is shown and bounded."""

import asyncio
import json
import os
import socket
from random import Random

import pytest

from benchmarks.soak_parts.ending import LOOK_S, SHOW_S, Ending
from benchmarks.soak_parts.line import Line, Tally
from benchmarks.soak_parts.load import leave, report, until_input_ends
from benchmarks.soak_parts.store import OUTAGE_CALLS, OUTAGE_S, Faults
from tests.support.worlds.waiting import until

TURNS = 40
"""Of the loop: more than a cancellation takes."""


@pytest.mark.parametrize("turns", range(6))
async def test_a_client_leaves_also_when_bytes_come_with_the_word_to_leave(turns: int) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, Line(ours) as line:

        async def life() -> None:
            while True:
                await line.receive(1)

        client = asyncio.create_task(life())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        theirs.send(b"x")
        for _ in range(turns):
            await asyncio.sleep(0)
        client.cancel()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        left = client.cancelled()
        client.cancel()
        assert left


async def test_a_client_that_stays_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.soak_parts.load.LEAVE_S", 0)
    tally, may_end = Tally(), asyncio.Event()

    async def stays() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    client = asyncio.create_task(stays())
    await asyncio.sleep(0)
    await leave([client], tally)
    assert tally.wrong[0].startswith("1 clients do not leave: ")
    may_end.set()
    await client


async def test_clients_go_on_until_their_input_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        monkeypatch.setattr("benchmarks.soak_parts.load.REPORT_S", 0.001)
        reports: list[int] = []
        running = asyncio.create_task(until_input_ends(lambda: reports.append(1)))
        await until(lambda: len(reports) > 2)
        assert not running.done()
        os.close(ours)
        await running


class Growing(list[float]):
    """Times to which another thread adds one whenever somebody looks how many they are."""

    def __len__(self) -> int:
        self.append(0.0)
        return super().__len__()


def test_times_that_come_while_they_are_reported_are_for_the_next_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tally = Tally()
    tally.latencies_ms["produce"] = Growing([7.0])
    report(tally)
    told = json.loads(capsys.readouterr().out)
    assert told["latencies_ms"] == {"produce": {"p50": 7, "p99": 7}}


class Time:
    """Seconds that pass when somebody pauses."""

    def __init__(self) -> None:
        self.now_s, self.shown = 0.0, list[str]()
        self.ending = Ending(self.shown.append, lambda: self.now_s, self.passes)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_step_says_what_it_waits_for_and_how_far_that_is() -> None:
    time = Time()
    time.ending.wait(
        "all have left", lambda: time.now_s >= 2 * SHOW_S + 1, 60, lambda: f"{time.now_s:g} left"
    )
    assert time.shown == [
        f"    {SHOW_S} s until all have left: {SHOW_S} left",
        f"   {2 * SHOW_S} s until all have left: {2 * SHOW_S} left",
        f"  after {2 * SHOW_S + 1:.1f} s all have left",
    ]
    assert time.ending.took_s == {"all have left": 2 * SHOW_S + 1}
    assert time.ending.findings == []


def test_a_step_that_takes_too_long_is_a_finding_with_how_far_it_was() -> None:
    time = Time()
    time.ending.wait("all have left", lambda: False, 60, lambda: "7 are there")
    assert time.now_s == pytest.approx(60, abs=LOOK_S)
    assert time.ending.findings == ["not within 60 s: all have left: 7 are there"]


def test_a_page_that_is_not_there_is_neither_true_nor_the_end() -> None:
    def asked() -> bool:
        raise ConnectionRefusedError

    time = Time()
    time.ending.wait("health is green", asked, 60, lambda: str(asked()))
    assert time.ending.findings == [
        "not within 60 s: health is green: no page (ConnectionRefusedError())"
    ]


class Thrown(Random):
    """Dice that show what the test says."""

    def __init__(self, first: float, then: float) -> None:
        super().__init__()
        self._next, self._then = first, then

    def random(self) -> float:
        shown, self._next = self._next, self._then
        return shown


def test_an_outage_of_the_store_ends_after_some_calls_or_some_seconds() -> None:
    faults = Faults(Thrown(first=0, then=0.5))
    failed = [faults.next(now_s=0)[0] for _ in range(OUTAGE_CALLS + 5)]
    assert failed == [True] * OUTAGE_CALLS + [False] * 5

    faults = Faults(Thrown(first=0, then=0.5))
    assert [faults.next(now_s)[0] for now_s in (0, 1, OUTAGE_S, OUTAGE_S + 1)] == [
        True,
        True,
        False,
        False,
    ]
    assert (faults.calls, faults.failed, faults.outages) == (4, 2, 1)
