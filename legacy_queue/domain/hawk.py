"""Hawk, the HTTP authentication of Taskcluster, as in npm's hawk 2 to 6 and in mohawk.

A request is signed in its Authorization header. A GET can be signed in the ``bewit`` parameter of its target
instead. The MAC covers the raw request target, so a decoded target does not match. No error contains a key, a
MAC or a header. The server does not remember nonces, because every call of the queue is safe to repeat.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import unquote

from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.times import MILLISECOND, epoch_milliseconds

MAX_SKEW = timedelta(minutes=15)  # exactly 15 minutes still pass
# of a header or a bewit: enough for the claim of a task with 30 KiB of scopes, encoded twice in a bewit
MAX_LENGTH = 72 * 1024

# names in a header, and in Signature
_FIELDS = {"id": "client_id", "ts": "timestamp", "hash": "payload_hash"}
_FIELDS |= {name: name for name in ("nonce", "ext", "mac", "app", "dlg")}
_NAMES = frozenset(_FIELDS)
_REQUIRED = ("id", "ts", "nonce", "mac")
# npm's hawk accepts the last comma, mohawk a space before "=", and a client in Go sends ext=""
_PAIR = re.compile(r'\s*(\w+)\s*=\s*"([^"]*)"\s*')
_PLAIN = re.compile(r"[ -\[\]-~]*")
_SECONDS = re.compile("[0-9]{1,15}")
_PAIRS = re.compile(rf"{_PAIR.pattern}(?:,{_PAIR.pattern})*(?:,\s*)?")
_FORM = 'Hawk id="..", ts="..", nonce="..", mac=".."'
_MALFORMED_BEWIT = "the bewit is not base64 of clientId, end, MAC and ext with a backslash between them"


@dataclass(frozen=True)
class SignedRequest:
    """A request as received. ``target`` is raw, not decoded, and may have a bewit.

    ``host`` and ``port`` are what the client addressed, even if the server is behind a proxy.
    """

    method: str
    target: str = field(repr=False)
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)
    content_type: str | None = None
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Signature:
    """The signature of a request. Do not trust it before ``verify``.

    ``timestamp`` is in seconds: when the request was signed, or when the bewit expires. ``target`` is without
    the bewit.
    """

    kind: Literal["header", "bewit"]
    client_id: str
    timestamp: str
    target: str = field(repr=False)
    mac: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)
    payload_hash: str = field(default="", repr=False)
    ext: str = field(default="", repr=False)
    app: str = ""
    dlg: str = ""


def read_signature(request: SignedRequest) -> Signature | None:
    """Returns the signature, or None if there is none. Raises AuthenticationFailed if it is malformed."""
    bewit, target = _split_bewit(request.target)
    if bewit is None:
        return None if request.authorization is None else _read_header(request.authorization, target)
    if request.authorization is not None:
        raise _malformed("the request has an Authorization header and a bewit: send only one of them")
    if request.method.upper() not in ("GET", "HEAD"):
        raise _malformed("a bewit is for a GET: sign this request in its Authorization header")
    return _read_bewit(bewit, target)


def _split_bewit(target: str) -> tuple[str | None, str]:
    """Splits a target into its bewit and the target without it."""
    if "bewit" not in target:  # true for almost every request
        return None, target
    path, _, query = target.partition("?")
    parameters = query.split("&")
    bewits = [part for part in parameters if part.partition("=")[0] == "bewit"]
    if not bewits:
        return None, target
    if len(bewits) > 1:
        raise _malformed("the query has more than one bewit")
    # the MAC of a bewit covers the target as it was before the bewit was added, wherever that was
    parameters.remove(bewits[0])
    return bewits[0].partition("=")[2], "?".join([path, "&".join(parameters)] if parameters else [path])


def _read_header(header: str, target: str) -> Signature:
    """``Hawk id="a", ts="1", ..``; an empty attribute equals an absent one."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "hawk":
        raise _malformed("the scheme of the Authorization header is not Hawk")
    if len(header) > MAX_LENGTH:
        raise _malformed(f"the Authorization header is longer than {MAX_LENGTH} characters")
    if not _is_plain(header):
        raise _malformed(
            "the Authorization header has a backslash or a character that is not printable ASCII"
        )
    if not _PAIRS.fullmatch(text):  # findall alone would skip whatever is not a pair
        raise _malformed(f"the Authorization header is not of the form {_FORM}")
    pairs = _PAIR.findall(text)
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _malformed("the Authorization header has an attribute twice")
    if not values.keys() <= _NAMES:
        raise _malformed(
            f"the Authorization header has an unknown attribute: expected only {', '.join(_FIELDS)}"
        )
    if missing := [name for name in _REQUIRED if name not in values or not values[name]]:
        raise _malformed(f"the Authorization header has no {' and no '.join(missing)}")
    _check_seconds(values["ts"])
    fields = {_FIELDS[name]: value for name, value in pairs}
    return Signature("header", target=target, **fields)


def _read_bewit(bewit: str, target: str) -> Signature:
    """Reads base64 of id, end, MAC and ext, with backslashes between them. ext may be empty."""
    if len(bewit) > MAX_LENGTH:
        raise _malformed(f"the bewit is longer than {MAX_LENGTH} characters")
    try:
        text = decode_base64(unquote(bewit)).decode("ascii")
        client_id, expires, mac, ext = text.split("\\")
    except ValueError:
        raise _malformed(_MALFORMED_BEWIT) from None
    if not _is_plain(client_id + mac + ext) or not client_id or not mac:
        raise _malformed(_MALFORMED_BEWIT)
    _check_seconds(expires)
    return Signature("bewit", client_id, expires, target, mac, ext=ext)


def _check_seconds(text: str) -> None:
    if not _SECONDS.fullmatch(text):  # int would read digits of other scripts, too
        raise _malformed("the timestamp is not a number of seconds")


def _malformed(reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(reason, is_of_form=True)


def _is_plain(text: str) -> bool:
    """Whether Hawk allows the text between the quotes of a header: a backslash would start an escape."""
    return _PLAIN.fullmatch(text) is not None


def verify(signature: Signature, request: SignedRequest, access_token: str, now: datetime) -> None:
    """Raises AuthenticationFailed unless the request was signed with this token and in time.

    The body is checked if the signature has a payload hash.
    """
    is_bewit = signature.kind == "bewit"
    # check the MAC first, so that the log blames a clock only if the key was right
    if not hmac.compare_digest(_mac(signature, request, access_token), signature.mac):
        raise AuthenticationFailed("wrong key (MAC), or another method, host, port or target was signed")
    if not _payload_matches(signature, request):
        raise AuthenticationFailed("payload hash does not match")
    ahead = int(signature.timestamp) * 1000 - epoch_milliseconds(now)
    if is_bewit and ahead <= 0:
        raise AuthenticationFailed("bewit expired")
    if not is_bewit and abs(ahead) > MAX_SKEW // MILLISECOND:
        direction = "ahead" if ahead > 0 else "behind"
        raise AuthenticationFailed(f"clock off by {abs(ahead) // 1000} s ({direction})")


def _payload_matches(signature: Signature, request: SignedRequest) -> bool:
    """Whether the body has the signed hash.

    Python's client hashes an empty body without a content type. In scriptworker, aiohttp then sends it with
    ``application/octet-stream``. The content type of an empty body does not matter, so both hashes are
    valid.
    """
    if not signature.payload_hash:
        return True
    content_types = {request.content_type or ""} | ({""} if not request.body else set())
    hashes = [payload_hash(request.body, kind) for kind in content_types]
    return any(hmac.compare_digest(each, signature.payload_hash) for each in hashes)


def payload_hash(body: bytes, content_type: str) -> str:
    """Returns base64 SHA-256 of the body and its content type, in lower case and without parameters."""
    media_type = content_type.partition(";")[0].strip().lower()
    digest = hashlib.sha256(_bytes(f"hawk.1.payload\n{media_type}\n") + body + b"\n").digest()
    return base64.b64encode(digest).decode()


def sign_header(
    request: SignedRequest, client_id: str, access_token: str, now: datetime, nonce: str, ext: str = ""
) -> str:
    """Returns the Authorization header of a request. It covers the body unless the content type is None."""
    covered = "" if request.content_type is None else payload_hash(request.body, request.content_type)
    timestamp = str(epoch_milliseconds(now) // 1000)
    signature = Signature("header", client_id, timestamp, request.target, "", nonce, covered, ext)
    signature = replace(signature, mac=_mac(signature, request, access_token))
    values = {name: getattr(signature, attribute) for name, attribute in _FIELDS.items()}
    return "Hawk " + ", ".join(f'{name}="{value}"' for name, value in values.items() if value)


def sign_bewit(
    request: SignedRequest, client_id: str, access_token: str, end: datetime, ext: str = ""
) -> str:
    """Returns the ``bewit`` parameter that signs a GET of the target until ``end``."""
    signature = Signature("bewit", client_id, str(epoch_milliseconds(end) // 1000), request.target, ext=ext)
    mac = _mac(signature, request, access_token)
    text = "\\".join((client_id, signature.timestamp, mac, ext))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_base64(text: str) -> bytes:
    """Decodes base64 of either alphabet, with or without padding. Raises ValueError for anything else."""
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def _mac(signature: Signature, request: SignedRequest, access_token: str) -> str:
    lines = [
        f"hawk.1.{signature.kind}",
        signature.timestamp,
        signature.nonce,
        # a bewit signs a GET, and is valid for a HEAD as well
        "GET" if signature.kind == "bewit" else request.method.upper(),
        signature.target,
        request.host.lower(),
        str(request.port),
        signature.payload_hash,
        signature.ext,
        # npm's hawk signs dlg, even if it is empty, but only if there is an app
        *([signature.app, signature.dlg] if signature.app else []),
        "",  # so that the last line ends with a newline
    ]
    text = "\n".join(lines)
    return base64.b64encode(hmac.digest(_bytes(access_token), _bytes(text), hashlib.sha256)).decode()


def _bytes(text: str) -> bytes:
    """Encodes any text as UTF-8, even lone surrogates, without an error."""
    return text.encode("utf-8", "surrogatepass")
