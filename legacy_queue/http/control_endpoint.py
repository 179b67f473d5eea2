"""What the endpoints of ``/control/v1`` have in common."""

from functools import partial

from legacy_queue.http.endpoint import endpoint

SCOPE = "queue:control"

control_endpoint = partial(endpoint, scopes=SCOPE, service="control")
