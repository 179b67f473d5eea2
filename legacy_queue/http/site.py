"""``Site`` has what the requests to one application need. Wiring builds it, and a reset builds another."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from legacy_queue.domain.authentication import Authenticator
from legacy_queue.domain.formats_of_2018 import BY_PATH
from legacy_queue.domain.hosts import Network
from legacy_queue.domain.scopes import OPEN_READS
from legacy_queue.domain.topics import PROJECT
from legacy_queue.http.browser_guard import ANY
from legacy_queue.http.metrics import Metrics
from legacy_queue.http.page.sign_in import SignIn
from legacy_queue.http.request_journal import Journal
from legacy_queue.services.artifacts.upload_slots import UploadSlots
from legacy_queue.services.control.clock_control import ClockControl
from legacy_queue.services.control.fault_registry import FaultRegistry
from legacy_queue.services.control.message_injection import MessageInjection
from legacy_queue.services.services import Services


@dataclass(frozen=True)
class Control:
    """What a test uses to control a server."""

    clock: ClockControl
    messages: MessageInjection
    # returns when everything stored is removed. Raises RequestConflict or ServiceUnavailable
    reset: Callable[[], None]
    # whether the data outlives the server
    is_kept: bool


@dataclass(frozen=True, kw_only=True)
class Site:
    """The services of the application, and the settings of its answers.

    A handler gets it only from ``Call.authorize``, so only after the check of the caller's scopes.
    """

    services: Services
    authenticator: Authenticator
    sign_in: SignIn
    metrics: Metrics
    # both are empty without control
    journal: Journal
    faults: FaultRegistry
    upload_slots: UploadSlots
    root_url: str
    # None unless the server is started with --control
    control: Control | None = None
    # as in BrowserGuard
    hosts: Collection[str] = (ANY,)
    origins: Collection[str] = ()
    # as in TrustedProxies
    proxies: Sequence[Network] = ()
    # the generation of clients for which answers are made
    shape: str = BY_PATH
    # the scopes that every caller has, each within READS
    anonymous: tuple[str, ...] = OPEN_READS
    # part of the names of the exchanges
    project: str = PROJECT
    is_development: bool = False
    has_legacy_stubs: bool = False
