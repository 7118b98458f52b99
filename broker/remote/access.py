"""As whom the tier's Kafka clients write to the broker."""

from typing import Final

TIER_PRINCIPAL: Final = "Tidemark:tier"
"""The one that may write `__remote_log_metadata`. Users of a listener for clients have Kafka's type
`User`, so that none of them can be called so."""
