"""A server for tests: its start and end, its URLs and its clients."""

from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from legacy_queue.domain.ids import slugid
from legacy_queue.testing.queue_http import QueueHttp
from legacy_queue.testing.server_process import ServerProcess
from legacy_queue.worker.worker_settings import Credentials

__tracebackhide__ = True  # a traceback ends at the test's call

_CLIENT_ID = "legacy-queue-testing"  # beside the clients that a test configures


def trust_variables(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables with which clients trust the server with this ready line, beside other servers."""
    if "ca" not in ready:
        return {}
    certificate = ready["ca"]["certificate"]
    bundle = ready["ca"]["bundle"]
    bundles = dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE"), bundle)
    return {**bundles, "NODE_EXTRA_CA_CERTS": certificate}


def client_variables(ready: Mapping[str, Any]) -> dict[str, str]:
    """The variables with which clients find the server with this ready line: URL, trust, credentials."""
    found = {**trust_variables(ready), "TASKCLUSTER_ROOT_URL": ready["rootUrl"]}
    if "credentials" in ready:
        found["TASKCLUSTER_CLIENT_ID"] = ready["credentials"]["clientId"]
        found["TASKCLUSTER_ACCESS_TOKEN"] = ready["credentials"]["accessToken"]
    return found


class QueueServer:
    """A context manager: the server runs within the ``with``. All other members need the server."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._started: tuple[ServerProcess, QueueHttp] | None = None

    def __enter__(self) -> Self:
        if self._started:
            raise RuntimeError("the server is running already: a fixture has entered its queue")
        settings = dict(self._settings)
        own = {"accessToken": slugid() + slugid(), "scopes": ["*"]}
        if isinstance(clients := settings.get("clients"), Mapping):
            settings["clients"] = {**clients, _CLIENT_ID: own}
        process = ServerProcess(settings)
        made_up = {"clientId": _CLIENT_ID, "accessToken": own["accessToken"]}
        self._credentials: dict[str, str] = process.ready.get("credentials", made_up)
        verify: bool | str = process.ready.get("ca", {}).get("bundle") or settings.get("tls_cert") or True
        client = Credentials.from_wire(self._credentials)
        self._started = process, QueueHttp(process.ready["rootUrl"], client, verify, process.check)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._http.close()
        self._process.stop()
        self._started = None

    @property
    def root_url(self) -> str:
        """The root URL for today's clients: ``http://127.0.0.1:<port>``."""
        return str(self._process.ready["rootUrl"])

    @property
    def base_url(self) -> str:
        """The base URL for clients of the old API: the root URL and ``/v1``."""
        return str(self._process.ready["baseUrl"])

    @property
    def credentials(self) -> dict[str, str]:
        """``clientId`` and ``accessToken`` of a client that may do everything."""
        return dict(self._credentials)

    @property
    def env(self) -> dict[str, str]:
        """The variables with the queue's URL, trust and credentials, for Taskcluster's programs."""
        return client_variables({**self._process.ready, "credentials": self._credentials})

    def client(self, **options: Any) -> Any:
        """A ``taskcluster.Queue`` of the installed package, old or new, with further ``options`` of it.

        Raises ImportError where it is not installed.
        """
        try:
            queue = import_module("taskcluster").Queue
        except ImportError as error:
            raise ImportError("client() needs Taskcluster's client: pip install taskcluster") from error
        is_old = "baseUrl" in queue.classOptions
        where = {"baseUrl": self.base_url} if is_old else {"rootUrl": self.root_url}
        return queue({**where, "credentials": self.credentials, **options})

    @property
    def _process(self) -> ServerProcess:
        return self._running[0]

    @property
    def _http(self) -> QueueHttp:
        return self._running[1]

    @property
    def _running(self) -> tuple[ServerProcess, QueueHttp]:
        if self._started is None:
            raise RuntimeError("the server is not running: use LegacyQueue() in a with statement")
        return self._started
