"""Whether a query holds a shared access signature that allows to process the messages of a queue.

Checked on decoded values, because clients quote anew what they were given. Nothing here logs: a signature
is a secret. Source: Azure's "Create a service SAS" (version 2015-04-05 and later); design/clients.md 15.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qsl

from legacy_queue.domain.times import parse_time
from legacy_queue.gateway.azure_errors import AzureError

SAS_FIELDS = frozenset(("sv", "st", "se", "sp", "spr", "sip", "si", "sig"))

_MAX_PARAMETERS = 50


def parse_query(query: bytes) -> dict[str, str]:
    """The decoded parameters; raises AzureError for one that is there twice, as it could mean two things."""
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise AzureError("InvalidQueryParameterValue", "There are too many parameters.") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in parameters:
            if name in SAS_FIELDS:
                raise AzureError("AuthenticationFailed")
            raise AzureError("InvalidQueryParameterValue", f"{name!r} is given more than once.")
        parameters[name] = value
    return parameters


def authenticate(
    parameters: Mapping[str, str], account: str, queue_name: str, key: bytes, scheme: str, now: datetime
) -> None:
    """Return when the signature was made with the key for this queue, and its times and protocol hold.

    A stored access policy (``si``) and a range of addresses (``sip``) are signed but never granted: this
    server issues none. Raises AzureError.
    """
    signed = "\n".join(
        (
            parameters.get("sp", ""),
            parameters.get("st", ""),
            parameters.get("se", ""),
            f"/queue/{account}/{queue_name}",
            parameters.get("si", ""),
            parameters.get("sip", ""),
            parameters.get("spr", ""),
            parameters.get("sv", ""),
        )
    )
    expected = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256))
    is_signed = hmac.compare_digest(expected, parameters.get("sig", "").encode())
    if not (is_signed and _is_granted(parameters, scheme, now)):
        raise AzureError("AuthenticationFailed")
    if "p" not in parameters.get("sp", ""):
        raise AzureError("AuthorizationPermissionMismatch")


def _is_granted(parameters: Mapping[str, str], scheme: str, now: datetime) -> bool:
    try:
        begun = "st" not in parameters or parse_time(parameters["st"]) <= now
        ended = now >= parse_time(parameters.get("se", ""))
    except ValueError:
        return False
    return (
        begun
        and not ended
        and bool(parameters.get("sv"))
        and scheme in parameters.get("spr", "https,http").split(",")
        and not parameters.get("si")
        and not parameters.get("sip")
    )
