"""The caller of pollTaskUrls in a signed URL that this server answers, so that a poll is a sign of its life.

It stands where Azure has the name of a stored access policy (``si``), which the signature covers.
"""

import base64

_BEGIN = "by."  # of no policy: none exists


def poll_policy(caller: str) -> str:
    """The policy that names the caller, of letters, digits, ``-``, ``_`` and a dot."""
    return _BEGIN + base64.urlsafe_b64encode(caller.encode()).decode().rstrip("=")


def poll_caller(policy: str) -> str:
    """The caller that a signed policy names; raises ValueError for any other policy."""
    if not policy.startswith(_BEGIN):
        raise ValueError("it names no caller of pollTaskUrls")
    text = policy.removeprefix(_BEGIN)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
