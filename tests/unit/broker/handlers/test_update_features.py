"""UpdateFeatures between the wire, the active controller's decision and the quorum's replica."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from broker.handlers.update_features import UpdateFeaturesHandler
from broker.network.registry import RequestContext
from kafka_protocol.errors import ErrorCode
from kafka_protocol.wire.api_keys import ApiKey
from kafka_protocol.wire.codec import request, response
from metadata_topic.controller.brokers import Registration
from metadata_topic.controller.election_rules import DEFAULT_RULES
from metadata_topic.controller.errors import NotControllerError
from metadata_topic.controller.features import SUPPORTED_FEATURES
from metadata_topic.image.image import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION
from metadata_topic.raft.messages import (
    Request,
    Standing,
    UpgradeKraftVersionRequest,
    VoterResponse,
)
from metadata_topic.raft.voters import ReplicaKey, Voter, VoterSet
from tests.support.samples.metadata import apply, cluster_of

KEY, UP = ApiKey.UPDATE_FEATURES, 1
ALONE = VoterSet((Voter(ReplicaKey(1)),))
ME = Registration(1, bytes(16), (), SUPPORTED_FEATURES)


@dataclass
class Quorum:
    """A node whose replica answers so, and whose decisions are carried out at once."""

    answer: VoterResponse = field(default_factory=lambda: said(ErrorCode.NONE))
    did: list[Any] = field(default_factory=list)
    kraft_version: int = 0
    leader_epoch: int = 5
    image: Any = field(default_factory=lambda: cluster_of(1, features={METADATA_VERSION: 29}))
    voters: VoterSet = ALONE
    registration: Registration = ME
    brokers: Any = field(default_factory=lambda: SimpleNamespace(election_defaults=DEFAULT_RULES))

    def receive(self, asked: Request, respond: Any) -> None:
        assert isinstance(asked, UpgradeKraftVersionRequest)
        self.did.append(asked)
        if self.answer.error is ErrorCode.NONE and not asked.validate_only:
            self.kraft_version = asked.level
        respond(self.answer)

    async def submit(self, decide: Any, **_: Any) -> None:
        records = decide(self.image).records
        self.did += [one.value.name for one in records if one.name == "FeatureLevelRecord"]
        self.image = apply(self.image, records)


def said(error: ErrorCode, text: str = "") -> VoterResponse:
    return VoterResponse(error, Standing(5), text)


async def update(quorum: Any, *levels: tuple[str, int], validate_only: bool = False) -> Any:
    """Through the codec, both ways."""
    codec, answer = request(KEY), response(KEY)
    updates = [
        codec.cls.FeatureUpdates(feature=name, max_version_level=level, upgrade_type=UP)
        for name, level in levels
    ]
    body = codec.cls(feature_updates=updates, validate_only=validate_only)
    read, _ = codec.decode(codec.encode(body, 2), 2)
    context = RequestContext(KEY, 2, 1, "", "CONTROLLER", ("127.0.0.1", 1), 0)
    found = await UpdateFeaturesHandler(quorum).handle(context, read)
    told, _ = answer.decode(answer.encode(found, 2), 2)
    return told


async def test_the_voters_come_into_the_log_before_the_other_levels_are_written() -> None:
    quorum = Quorum()
    answer = await update(quorum, (METADATA_VERSION, 30), (KRAFT_VERSION, 1), (ELR_VERSION, 1))
    assert answer.error_code == 0
    assert quorum.did == [UpgradeKraftVersionRequest(5, 1), METADATA_VERSION, ELR_VERSION]


async def test_without_kraft_version_the_replica_is_not_asked() -> None:
    quorum = Quorum()
    assert (await update(quorum, (METADATA_VERSION, 30))).error_code == 0
    assert quorum.did == [METADATA_VERSION]


async def test_a_check_is_one_for_the_replica_too() -> None:
    quorum = Quorum()
    await update(quorum, (KRAFT_VERSION, 1), (METADATA_VERSION, 30), validate_only=True)
    assert quorum.did == [UpgradeKraftVersionRequest(5, 1, validate_only=True)]


async def test_bad_input_one_update_that_cannot_be_leaves_kraft_version_as_it_is() -> None:
    quorum = Quorum()
    answer = await update(quorum, (KRAFT_VERSION, 1), (METADATA_VERSION, 99))
    assert (answer.error_code, quorum.did) == (ErrorCode.INVALID_UPDATE_VERSION, [])


@pytest.mark.parametrize(
    ("refused", "code", "text"),
    [
        (
            said(ErrorCode.INVALID_UPDATE_VERSION, "voter 3 is away"),
            ErrorCode.INVALID_UPDATE_VERSION,
            "The update failed for all features since the following feature had an error: "
            "voter 3 is away",
        ),
        (said(ErrorCode.REQUEST_TIMED_OUT, "busy"), ErrorCode.REQUEST_TIMED_OUT, "busy"),
        (
            said(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ErrorCode.NOT_CONTROLLER,
            "this node ceased to lead the quorum",
        ),
    ],
)
async def test_what_the_replica_refuses_is_told_and_nothing_else_is_written(
    refused: VoterResponse, code: ErrorCode, text: str
) -> None:
    quorum = Quorum(refused)
    answer = await update(quorum, (KRAFT_VERSION, 1), (METADATA_VERSION, 30))
    assert (answer.error_code, answer.error_message) == (code, text)
    assert quorum.did == [UpgradeKraftVersionRequest(5, 1)]


async def test_an_error_after_kraft_version_was_raised_says_that_it_is_raised() -> None:
    class Lost(Quorum):
        async def submit(self, decide: Any, **_: Any) -> None:
            decide(self.image)
            if self.kraft_version:
                raise NotControllerError("it leads no longer")

    answer = await update(Lost(), (KRAFT_VERSION, 1), (METADATA_VERSION, 30))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert answer.error_message == (
        "kraft.version has level 1, the others failed: it leads no longer"
    )
