"""How the tiers' Kafka clients are known to a broker.

A lone broker makes a token at each start, which its tier gets over its link: SASL/PLAIN, on
loopback alone. With the secret of the cluster every tier is known at every broker by
SCRAM-SHA-256, which sends nothing by which another could pass for a tier: so also beyond loopback.

Nothing is stored for it: salt and keys follow from the secret and the cluster's id, the same at
every broker. The secret has so much entropy that the number of iterations does not matter.
"""

from dataclasses import dataclass, field
from typing import Final

from broker.network.authentication import Authenticator, PlainAuthenticator
from broker.remote.config import TIER_PRINCIPAL
from runtime.dice import Dice

USER: Final = "tier"


@dataclass(frozen=True, slots=True)
class TierIdentity:
    """What the listener asks for, and what a tier's Kafka clients answer.

    Attributes:
        authenticator: of the listener.
        password: of `USER`; shown nowhere.
    """

    authenticator: Authenticator
    password: str = field(repr=False)


def identity_of_lone_broker(dice: Dice) -> TierIdentity:
    """Make the token of one start."""
    token = dice.uuid().hex()
    return TierIdentity(PlainAuthenticator(USER, token, TIER_PRINCIPAL), token)


def identity_in_cluster(secret: str, cluster_id: str, dice: Dice) -> TierIdentity:
    """Derive it; some milliseconds of a CPU, once."""
    # These load OpenSSL, which a lone broker has no use for.
    from hashlib import sha256

    from broker.network.scram import ITERATIONS_MIN, ScramAuthenticator, ScramCredential

    salt = sha256(f"tidemark tier {cluster_id}".encode()).digest()
    credential = ScramCredential.of(secret.encode(), salt, ITERATIONS_MIN)
    authenticator = ScramAuthenticator(USER, credential, TIER_PRINCIPAL, lambda: dice.uuid().hex())
    return TierIdentity(authenticator, secret)
