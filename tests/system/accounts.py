"""An account that several processes share: what each of them is told of it."""

import json
import secrets

from legacy_queue.adapters.azurite import Azurite

from .http_queue import Queue
from .processes import Server

SIGNING_SECRET = "a-signing-secret-for-the-tests-of-servers"
ROOT = {"clientId": "root", "accessToken": "an-access-token-for-the-tests-of-servers"}


def on_account(azurite: Azurite, amqp_url: str | None = None) -> dict[str, str]:
    """The environment of the processes of one new queue, whose project is named as its prefix is."""
    name = f"t{secrets.token_hex(4)}"
    env = {
        "STORAGE": "azure",
        "CONNECTION_STRING": azurite.connection_string,
        "QUEUE_PREFIX": name,
        "PROJECT": name,
        "SIGNING_SECRETS": SIGNING_SECRET,
        "CLIENTS": json.dumps({ROOT["clientId"]: {"accessToken": ROOT["accessToken"], "scopes": ["*"]}}),
        **({"AMQP_URL": amqp_url} if amqp_url else {}),
    }
    return {f"LEGACY_QUEUE_{name}": value for name, value in env.items()}


def as_root(server: Server) -> Queue:
    """The queue for the client that may do anything."""
    return Queue(server, ROOT)
