"""Control records of the quorum go into the log between two decisions."""

from dataclasses import replace

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.errors import UnwrittenDecisionError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from runtime.work import Steps
from tests.support.worlds.naive_quorum import PLAIN, NaiveQuorum, creating, names, serving

LINGERS = replace(PLAIN, append_linger_ms=25)


def test_a_quiet_moment_comes_after_the_append_and_decisions_continue() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    gathered = quorum.submit(creating("a"))
    quorum.run(1)
    ends: list[int] = []

    def append() -> None:
        ends.append(quorum.log_end())
        quorum.write_control()

    quorum.loop.when_quiet(append)
    waiting = quorum.submit(creating("b"))
    quorum.run(10)
    assert ends == [], "a has its offset, and is not in the log"
    quorum.run(16)
    assert ends == [quorum.appends[-1][1]]
    quorum.commit()
    quorum.run(30)
    quorum.commit()
    assert [gathered.response, waiting.response] == ["made a", "made b"]
    assert names(quorum.replayed(quorum.log_end())) == ["a", "b", "first"]
    assert quorum.resignations == []


def test_a_decision_in_steps_is_not_disturbed() -> None:
    quorum = serving(PLAIN)
    done: list[int] = []

    def large(_image: MetadataImage) -> Steps[ControllerResult[str]]:
        for _ in range(20):
            yield
            quorum.ports.clock.advance(1)
        done.append(1)
        return ControllerResult((), "done")

    answer = quorum.submit(large, timeout_ms=60_000)
    called: list[bool] = []
    quorum.ports.scheduler.call_later(
        1, lambda: quorum.loop.when_quiet(lambda: called.append(bool(done)))
    )
    quorum.run(100)
    assert (answer.response, called) == ("done", [True])


def test_an_append_that_is_taken_back_does_not_keep_it_waiting() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    lost = quorum.submit(creating("a"))
    quorum.run(1)
    called: list[int] = []
    quorum.loop.when_quiet(lambda: called.append(1))
    quorum.shortage = UnwrittenDecisionError("no memory")
    quorum.run(30)
    assert (lost.code, called) == (ErrorCode.NOT_CONTROLLER, [1])


def test_who_decides_nothing_is_quiet() -> None:
    called: list[int] = []
    NaiveQuorum().loop.when_quiet(lambda: called.append(1))
    assert called == [1]


def test_a_term_that_ends_meanwhile_calls_nobody() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    quorum.submit(creating("a"))
    quorum.run(1)
    called: list[int] = []
    quorum.loop.when_quiet(lambda: called.append(1))
    quorum.depose()
    quorum.run(60)
    assert called == []
