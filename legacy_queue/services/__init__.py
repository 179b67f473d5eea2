"""The use cases: read, decide (domain), arm, hold, write, tell. Authorization has happened before."""

from dataclasses import dataclass

from legacy_queue.services.claims import Claims
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.listing import Listing
from legacy_queue.services.polling import Polling
from legacy_queue.services.tasks import Tasks


@dataclass(frozen=True)
class Services:
    """What an endpoint gets hold of once its caller is authorized."""

    tasks: Tasks
    claims: Claims
    polling: Polling
    listing: Listing
    event_feed: EventFeed
