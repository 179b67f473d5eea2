"""The values that the services are built with. Only ``config`` reads where they come from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from legacy_queue.domain.authentication import Client


@dataclass(frozen=True)
class ServiceSettings:
    """Frozen; every field is about one server process.

    ``secrets``: the first signs messages, any of them verifies. ``issuer`` signs the credentials of claims.
    ``proof_required``: pools, as ``provisionerId/workerType``, whose claims must send their message.
    ``sas_life``: validity of poll URLs. ``poll_visibility``: how long a polled message is invisible.
    ``claim_work_wait``: how long claimWork waits for work. ``upload_url``: prefix of artifact upload URLs.
    ``max_streams``: open event streams. ``has_todays_events``: events have today's shape.
    ``max_polls``: pools that are polled at a time. A poll of its own storage keeps the process from calls, a
    poll of another mostly waits.
    ``tells_offers``: processes tell each other what they offer, since storage does not show it.
    """

    secrets: Sequence[bytes] = field(repr=False)
    issuer: Client
    claim_timeout: timedelta
    sas_life: timedelta
    poll_visibility: timedelta
    claim_work_wait: timedelta
    upload_url: str
    proof_required: frozenset[str] = frozenset()
    max_streams: int = 500
    has_todays_events: bool = False
    max_polls: int = 4
    tells_offers: bool = False

    def policy(self, provisioner_id: str, worker_type: str) -> str:
        """``required`` if a claimTask of the pool must present the polled message, else ``optional``."""
        return "required" if f"{provisioner_id}/{worker_type}" in self.proof_required else "optional"
