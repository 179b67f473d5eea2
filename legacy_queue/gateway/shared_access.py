"""Whether a query holds a shared access signature that allows what is asked for, of a queue or a blob.

Checked on decoded values, because clients quote anew what they were given. Nothing here logs: a signature
is a secret. Source: Azure's "Create a service SAS" (version 2015-04-05 and later for queues,
2020-12-06 and later for blobs); design/clients.md 15.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qsl

from legacy_queue.domain.times import parse_time
from legacy_queue.gateway.azure_answers import AzureError

# what is signed after the resource, in that order
_QUEUE_FIELDS = ("si", "sip", "spr", "sv")
_BLOB_FIELDS = (*_QUEUE_FIELDS, "sr", "snapshot", "ses", "rscc", "rscd", "rsce", "rscl", "rsct")
_NEVER_GRANTED = ("si", "sip", "snapshot", "ses", "rscc", "rsce", "rscl", "rsct")

SAS_FIELDS = frozenset(("sp", "st", "se", "sig", *_QUEUE_FIELDS))
BLOB_SAS_FIELDS = SAS_FIELDS | set(_BLOB_FIELDS)

_MAX_PARAMETERS = 50
_FIRST_COUNTS = "visibilitytimeout"  # Azure's JavaScript client appends its own to a poll URL's


def parse_query(query: bytes) -> dict[str, str]:
    """The decoded parameters; raises AzureError for one that is there twice, as it could mean two things.

    Of a doubled ``visibilitytimeout`` the first counts, as with Azurite.
    """
    try:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise AzureError("InvalidQueryParameterValue", "There are too many parameters.") from None
    parameters: dict[str, str] = {}
    for name, value in pairs:
        if name in parameters:
            if name == _FIRST_COUNTS:
                continue
            if name in BLOB_SAS_FIELDS:
                raise AzureError("AuthenticationFailed")
            raise AzureError("InvalidQueryParameterValue", f"{name!r} is given more than once.")
        parameters[name] = value
    return parameters


def authenticate(
    parameters: Mapping[str, str], resource: str, permission: str, key: bytes, scheme: str, now: datetime
) -> None:
    """Return when the signature was made with the key for this resource and permission, and holds now.

    ``resource`` is ``/queue/<account>/<queue>`` or ``/blob/<account>/<container>/<blob>``. A stored access
    policy (``si``), a range of addresses (``sip``), headers to answer with (``rsct`` and so on), a snapshot
    and an encryption scope are signed but never granted: this server issues none. ``rscd=attachment`` is, as
    that is what is answered anyway. Raises AzureError.
    """
    behind = _BLOB_FIELDS if resource.startswith("/blob/") else _QUEUE_FIELDS
    first, second, third, *others = (parameters.get(name, "") for name in ("sp", "st", "se", *behind))
    signed = "\n".join((first, second, third, resource, *others)).encode()
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    is_signed = hmac.compare_digest(expected, parameters.get("sig", "").encode())
    if not (is_signed and _is_granted(parameters, scheme, now)):
        raise AzureError("AuthenticationFailed")
    if permission not in parameters.get("sp", ""):
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
        and not any(parameters.get(name) for name in _NEVER_GRANTED)
        and parameters.get("rscd", "") in ("", "attachment")
    )
