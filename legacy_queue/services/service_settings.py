"""The settings of the services. Only ``config`` knows where their values come from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from legacy_queue.domain.authentication import Client


@dataclass(frozen=True)
class ServiceSettings:
    """The values that the services of one server process are made with."""

    # the first signs messages, any of them verifies
    secrets: Sequence[bytes] = field(repr=False)
    # signs the credentials of claims
    issuer: Client
    claim_timeout: timedelta
    # how long the URLs for polls are valid
    sas_life: timedelta
    # how long a message is hidden after a worker has received it
    poll_visibility: timedelta
    # how long claimWork waits for work
    claim_work_wait: timedelta
    # how the upload URLs of artifacts begin
    upload_url: str
    # pools, as ``provisionerId/workerType``, whose claims must prove that they received the message
    proof_required: frozenset[str] = frozenset()
    # event streams that may be open at the same time
    max_streams: int = 500
    # whether events have today's shape
    has_todays_events: bool = False
    # pools polled at the same time: a poll of embedded storage keeps the process busy, one of Azure waits
    max_polls: int = 4
    # whether processes announce new messages to each other, because storage does not
    announces_offers: bool = False

    def policy(self, provisioner_id: str, worker_type: str) -> str:
        """Returns ``required`` if a claimTask of the pool must prove that it received the message.

        Otherwise returns ``optional``.
        """
        return "required" if f"{provisioner_id}/{worker_type}" in self.proof_required else "optional"
