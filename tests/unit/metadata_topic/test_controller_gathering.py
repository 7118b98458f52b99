"""Decisions that go into the log together, and what becomes of them where the log takes none."""

from dataclasses import replace

from kafka_protocol.errors import ErrorCode
from metadata_topic.controller.errors import UnwrittenDecisionError
from metadata_topic.controller.result import ControllerResult
from metadata_topic.image.image import MetadataImage
from runtime.work import Steps
from tests.support.worlds.naive_quorum import PLAIN, creating, names, serving

LINGERS = replace(PLAIN, append_linger_ms=25)


def test_decisions_within_the_linger_share_one_append_in_separate_batches() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    del quorum.appends[:]
    answers = [quorum.submit(creating("a"))]
    quorum.run(10)
    answers += [quorum.submit(creating(name)) for name in "bc"]
    quorum.run(14)
    assert quorum.appends == []
    quorum.run(1)
    ((start, end),) = quorum.appends
    assert end - start == 3
    assert [facts.base_offset for facts, _ in quorum.batches[-3:]] == [start, start + 1, start + 2]
    quorum.commit()
    quorum.run(1)
    assert all(answer.is_there for answer in answers)
    assert [quorum.replayed(at).provenance.end_offset for at in range(start, end + 1)] == list(
        range(start, end + 1)
    )


def test_nothing_waits_for_company_while_nothing_is_being_committed() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    del quorum.appends[:]
    answers = [quorum.submit(creating("a"))]
    quorum.run()
    assert len(quorum.appends) == 1
    answers += [quorum.submit(creating(name)) for name in "bc"]
    quorum.run(3)
    assert len(quorum.appends) == 1, "a is not committed yet"
    quorum.commit()
    quorum.run()
    assert len(quorum.appends) == 2, "now the linger is not waited for"
    quorum.commit()
    assert all(answer.is_there for answer in answers)


def test_an_append_short_of_memory_takes_back_only_its_own_decisions() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    first = quorum.submit(creating("first"))
    quorum.run()
    lost = [quorum.submit(creating(name)) for name in "ab"]
    quorum.run()
    assert names(quorum.loop.decided_image) == ["a", "b", "first"]
    quorum.shortage = UnwrittenDecisionError("no memory")
    quorum.run(25)
    assert [answer.code for answer in lost] == [ErrorCode.NOT_CONTROLLER] * 2
    assert names(quorum.loop.decided_image) == ["first"]
    again = quorum.submit(creating("a"))
    quorum.run(25)
    quorum.commit()
    quorum.run()
    assert first.response == "made first", "it was in the log when memory ran out"
    assert again.response == "made a"
    assert quorum.resignations == []
    assert names(quorum.loop.image) == ["a", "first"]


def test_who_is_being_decided_on_what_is_taken_back_hears_so_at_once() -> None:
    quorum = serving(LINGERS, commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    quorum.submit(creating("a"))
    quorum.run()
    seen: list[list[str]] = []

    def large(image: MetadataImage) -> Steps[ControllerResult[str]]:
        seen.append(names(image))
        while len(quorum.appends) < 3:
            yield
            quorum.ports.clock.advance(1)
        return ControllerResult((), "too late")

    quorum.shortage = UnwrittenDecisionError("no memory")
    under_way = quorum.submit(large, timeout_ms=60_000)
    quorum.run(25)
    assert seen == [["a", "first"]], "it began with what is taken back now"
    assert under_way.code == ErrorCode.NOT_CONTROLLER
    assert quorum.loop.decision_count == 1


def test_what_was_taken_back_does_not_count_as_uncommitted() -> None:
    large = "x" * 200
    quorum = serving(replace(LINGERS, uncommitted_bytes_max=1_500), commit_delay_ms=None)
    quorum.submit(creating("first"))
    quorum.run()
    for number in range(20):
        quorum.submit(creating(f"{large}{number}"))
        quorum.run(1)
        quorum.shortage = UnwrittenDecisionError("no memory")
        quorum.run(25)
    assert names(quorum.loop.decided_image) == ["first"]
    for name in "ab":
        quorum.submit(creating(name))
    quorum.run(1)
    assert names(quorum.loop.decided_image) == ["a", "b", "first"]


def test_much_data_does_not_wait_for_the_linger() -> None:
    quorum = serving(replace(LINGERS, max_batch_bytes=400))
    del quorum.appends[:]
    for number in range(5):
        quorum.submit(creating(f"topic-{number}"))
    quorum.run(1)
    assert quorum.appends != []


def test_a_linger_of_zero_still_gathers_what_one_turn_decides() -> None:
    quorum = serving()
    del quorum.appends[:]
    for name in "abcdefgh":
        quorum.submit(creating(name))
    quorum.run(1)
    assert len(quorum.appends) == 1
