"""Writes the caller of pollTaskUrls into signed URLs, so that the server knows who polls.

The caller stands in ``si``, where Azure has the name of a stored access policy. The signature covers it.
"""

import base64

_BEGIN = "by."  # no real policy begins like this, because this server has none


def poll_policy(caller: str) -> str:
    """Returns a policy name for the caller, made of letters, digits, ``-``, ``_`` and a dot."""
    return _BEGIN + base64.urlsafe_b64encode(caller.encode()).decode().rstrip("=")


def poll_caller(policy: str) -> str:
    """Returns the caller that a signed policy names. Raises ValueError for any other policy."""
    if not policy.startswith(_BEGIN):
        raise ValueError("it names no caller of pollTaskUrls")
    text = policy.removeprefix(_BEGIN)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
