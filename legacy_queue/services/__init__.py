"""The use cases: read, decide (domain), schedule, hold, write, publish. Authorization has happened before."""

from dataclasses import dataclass

from legacy_queue.services.artifacts import Artifacts
from legacy_queue.services.claim_work import ClaimWork
from legacy_queue.services.claims import Claims
from legacy_queue.services.event_feed import EventFeed
from legacy_queue.services.group_changes import GroupChanges
from legacy_queue.services.groups import Groups
from legacy_queue.services.listing import Listing
from legacy_queue.services.objects import Objects
from legacy_queue.services.pages import PageMemory
from legacy_queue.services.polling import Polling
from legacy_queue.services.task_queues import TaskQueues
from legacy_queue.services.tasks import Tasks
from legacy_queue.services.uploads import Uploads
from legacy_queue.services.usage import Usage
from legacy_queue.services.workers import Workers


@dataclass(frozen=True)
class Services:
    """What an endpoint gets hold of once its caller is authorized."""

    tasks: Tasks
    claims: Claims
    claim_work: ClaimWork
    polling: Polling
    task_queues: TaskQueues
    groups: Groups
    group_changes: GroupChanges
    listing: Listing
    page_memory: PageMemory
    event_feed: EventFeed
    usage: Usage
    workers: Workers
    artifacts: Artifacts
    uploads: Uploads
    objects: Objects
