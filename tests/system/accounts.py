"""An account that several processes share: their settings, and the client that may do anything."""

import json
import secrets

from legacy_queue.local_processes.azurite import Azurite

SIGNING_SECRET = "a-signing-secret-for-the-tests-of-servers"
ROOT = {"clientId": "root", "accessToken": "an-access-token-for-the-tests-of-servers"}


def on_account(azurite: Azurite, amqp_url: str | None = None) -> dict[str, str]:
    """The environment of the processes of a new queue; its project and its prefix have the same name."""
    name = f"t{secrets.token_hex(4)}"
    settings = {
        "STORAGE": "azure",
        "CONNECTION_STRING": azurite.connection_string,
        "QUEUE_PREFIX": name,
        "PROJECT": name,
        "SIGNING_SECRETS": SIGNING_SECRET,
        "CLIENTS": json.dumps({ROOT["clientId"]: {"accessToken": ROOT["accessToken"], "scopes": ["*"]}}),
        **({"AMQP_URL": amqp_url} if amqp_url else {}),
    }
    return {f"LEGACY_QUEUE_{name}": value for name, value in settings.items()}
