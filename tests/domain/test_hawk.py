"""Hawk signatures, compared with mohawk and with hawk 2.3.1 and 6.0.2 of npm. Refused ones get one error."""

import base64
import json
from dataclasses import replace
from typing import Any

import mohawk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legacy_queue.domain import hawk
from legacy_queue.domain.authentication import Client, create_temporary_credentials
from legacy_queue.domain.definition import MAX_SCOPES
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import SignedRequest
from tests.clients.javascript import javascript
from tests.domain.sample_tasks import HOUR, MINUTE, MS
from tests.domain.signing import (
    CREDENTIALS,
    EXT,
    KEY,
    NOW,
    REQUEST,
    SECONDS,
    TARGET,
    URL,
    refused,
    signed,
    unreadable,
    verify,
    with_bewit,
)


@pytest.mark.processes
@pytest.mark.parametrize("version", ["2", "6"])
def test_a_request_and_a_bewit_made_by_hawk_are_accepted(version: str) -> None:
    options = {"timestamp": SECONDS, "nonce": "abcdef", "ext": EXT, "app": "my-app", "dlg": "d"}
    payload = {"payload": REQUEST.body.decode(), "contentType": REQUEST.content_type}
    by: dict[str, Any] = {"hawk": version, "credentials": CREDENTIALS}
    for given_options in (options, options | payload, {"timestamp": SECONDS, "ext": ""}):
        header = javascript("header", **by, url=URL, method="post", options=given_options)
        signature = verify(replace(REQUEST, authorization=header))
        assert (signature.client_id, signature.ext) == (CREDENTIALS["id"], given_options["ext"])
        refused(replace(REQUEST, authorization=header), key=KEY + "x")
    by |= {"now": NOW.timestamp() * 1000, "options": {"ttlSec": 60, "ext": EXT}}
    for target in (TARGET, "/v1/ping", "/v1/ping?"):
        bewit = javascript("bewit", **by, url=f"http://queue.example.com:8080{target}")
        mark = "&" if "?" in target else "?"
        theirs = SignedRequest("GET", f"{target}{mark}bewit={bewit}", REQUEST.host, REQUEST.port)
        assert verify(theirs).ext == EXT
        assert with_bewit(target, NOW + MINUTE, ext=EXT) == theirs


def mohawk_header(**options: Any) -> str:
    credentials = CREDENTIALS | {"algorithm": "sha256"}
    sender = mohawk.Sender(credentials, URL, "POST", _timestamp=SECONDS, ext=EXT, **options)
    return str(sender.request_header)


def test_a_request_made_by_mohawk_is_accepted_and_mohawk_accepts_ours() -> None:
    header = mohawk_header(content=REQUEST.body, content_type="application/json")
    assert verify(replace(REQUEST, authorization=header)).payload_hash
    ours = signed(body=REQUEST.body, content_type="application/json")
    mohawk.Receiver(
        lambda _: CREDENTIALS | {"algorithm": "sha256"},
        ours.authorization,
        URL,
        "POST",
        content=REQUEST.body,
        content_type="application/json",
        seen_nonce=lambda *_: False,
        timestamp_skew_in_seconds=10**10,
    )


def test_an_empty_body_is_accepted_with_the_content_type_that_aiohttp_adds() -> None:
    # Python's client signs an empty body with an empty content type. Then aiohttp, which scriptworker uses,
    # adds application/octet-stream.
    request = replace(REQUEST, body=b"", authorization=mohawk_header(content="", content_type=""))
    for content_type in (None, "", "application/octet-stream"):
        verify(replace(request, content_type=content_type))


def test_a_header_is_valid_for_15_minutes_before_and_after_its_time_and_a_bewit_until_its_expiry() -> None:
    now = NOW.replace(microsecond=0)
    for skew, more in ((15 * MINUTE, MS), (-15 * MINUTE, -MS)):
        verify(signed(now=now), now + skew)
        refused(signed(now=now), now + skew + more)
    verify(with_bewit(expires=now), now - MS)
    refused(with_bewit(expires=now), now)


def test_a_bewit_is_found_anywhere_in_the_query() -> None:
    bewit = with_bewit("/p?a=1&b=2").target.partition("bewit=")[2]
    for target in ("/p?bewit={}&a=1&b=2", "/p?a=1&bewit={}&b=2", "/p?a=1&b=2&bewit={}"):
        assert verify(replace(with_bewit(), target=target.format(bewit))).target == "/p?a=1&b=2"
    for target in (TARGET, "/bewit=x?xbewit=1&bewits=2"):
        assert hawk.read_signature(replace(REQUEST, target=target)) is None


def test_a_bewit_has_room_for_all_scopes_that_a_task_can_have() -> None:
    scopes = ["a"] * (MAX_SCOPES // len('"a",'))
    issuer = Client("queue", KEY, ("*",))
    name = f"task-client/{'T' * 22}/1000/on/{'g' * 38}/{'w' * 38}/until/1520139967"
    made = create_temporary_credentials(issuer, name, scopes, NOW, NOW + HOUR, "s" * 44)
    # like Python's client, which writes spaces into JSON
    ext = base64.b64encode(json.dumps({"certificate": json.loads(made.certificate)}).encode()).decode()
    assert verify(with_bewit(ext=ext)).ext == ext


def test_a_bewit_is_read_in_either_base64_alphabet_padded_or_percent_encoded() -> None:
    bewit = with_bewit("/p", ext="~~~???>>>").target.partition("bewit=")[2]
    assert set("-_") & set(bewit)
    standard = bewit.replace("-", "+").replace("_", "/")
    padded = standard + "=" * (-len(standard) % 4)
    quoted = padded.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
    for form in (bewit, standard, padded, quoted):
        verify(replace(with_bewit(), target=f"/p?bewit={form}"))


def test_a_bewit_is_accepted_only_for_get_and_head_and_never_together_with_another_signature() -> None:
    request = with_bewit()
    verify(replace(request, method="HEAD"))
    for method in ("POST", "PUT", "DELETE"):
        unreadable(replace(request, method=method))
    unreadable(replace(request, target=f"{request.target}&bewit=x"))
    unreadable(replace(request, authorization=signed().authorization))


def encoded(*parts: str) -> str:
    return base64.urlsafe_b64encode("\\".join(parts).encode()).decode()


@pytest.mark.parametrize(
    "bewit",
    [
        "",
        "!",
        "%ff",
        encoded("a", "1", "mac", "", ""),
        encoded("a", "9" * 16, "mac", ""),
        encoded("a", "1", "", ""),
        encoded("a", "1", "mac", "é"),
        encoded("a", "1", "mac", "x" * hawk.MAX_LENGTH),
    ],
)
def test_a_malformed_bewit_is_refused(bewit: str) -> None:
    unreadable(replace(with_bewit(), target=f"/p?bewit={bewit}"))
    too_long = replace(with_bewit(), target=f"/p?bewit={'x' * (hawk.MAX_LENGTH + 1)}")
    assert f"longer than {hawk.MAX_LENGTH} characters" in unreadable(too_long)


FIELDS = {"id": "a", "ts": "1520139967", "nonce": "n", "mac": "m"}
GOOD = ", ".join(f'{name}="{value}"' for name, value in FIELDS.items())


def test_the_order_spaces_a_trailing_comma_and_empty_attributes_of_a_header_do_not_matter() -> None:
    for header in (
        f"hAWK {GOOD}",
        'Hawk   mac="m" ,nonce="n",ts="1520139967" ,  id="a" ',
        f"Hawk {GOOD} , ",
        f"Hawk {GOOD}".replace("ts=", "ts = "),
        f'Hawk {GOOD}, ext="", hash="", app="", dlg=""',
    ):
        signature = hawk.read_signature(replace(REQUEST, authorization=header))
        assert signature == hawk.Signature("header", "a", "1520139967", TARGET, "m", "n")


FORM = 'is not of the form Hawk id=".."'


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("Hawk ", FORM),
        (f"Bearer {GOOD}", "the scheme of the Authorization header is not Hawk"),
        *((f"Hawk {GOOD}".replace(f'"{value}"', '""'), f"no {name}") for name, value in FIELDS.items()),
        ('Hawk id="a", mac="m"', "no ts and no nonce"),
        *((f'Hawk {GOOD}, {name}="{FIELDS[name]}"', "an attribute twice") for name in FIELDS),
        (f'Hawk {GOOD}, ext="", ext="a"', "an attribute twice"),
        (f'Hawk {GOOD}, tsm="a"', "an unknown attribute: expected only id, ts, hash"),
        (f"Hawk {GOOD},,", FORM),
        (f'Hawk {GOOD}, ext="a', FORM),
        (f'Hawk {GOOD}, ext="a\\"b"', "a backslash"),
        (f'Hawk {GOOD}, ext="\ud800"', "not printable ASCII"),
        (f"Hawk {GOOD}, ext=a", FORM),
        (f'Hawk ,{GOOD}, ext="a"', FORM),
        (f"Hawk {GOOD}".replace("1520139967", "x"), "not a number of seconds"),
        (f"Hawk {GOOD}".replace("1520139967", "9" * 16), "not a number of seconds"),
        (f'Hawk {GOOD}, ext="{"x" * hawk.MAX_LENGTH}"', f"longer than {hawk.MAX_LENGTH} characters"),
        ("Hawk " + '"' * 60_000, FORM),
        ("Hawk a" + " a" * 30_000, FORM),
    ],
)
def test_the_error_for_a_malformed_header_says_what_is_wrong_and_shows_no_value(
    header: str, named: str
) -> None:
    assert named in unreadable(replace(REQUEST, authorization=header))


@settings(max_examples=40)
@given(st.text() | st.text('hawkidtsnoncemac=", 1\\').map("Hawk ".__add__), st.text(), st.binary(max_size=9))
def test_any_header_is_accepted_or_refused_and_raises_no_other_error(
    header: str, text: str, body: bytes
) -> None:
    for request in (
        SignedRequest("GET", text, text, 80, header, text, body),
        SignedRequest("GET", f"/?bewit={text}", text, 80, None, text, body),
        signed(SignedRequest("PUT", TARGET, "h", 80), body=b"x", content_type=""),
    ):
        try:
            verify(replace(request, host=text, content_type=text))
        except (AuthenticationFailed, AssertionError):
            continue


def test_a_request_that_was_changed_after_signing_is_refused() -> None:
    request = signed(body=REQUEST.body, content_type="application/json")
    refused(replace(request, port=443))
    for part in ("method", "target", "host", "content_type"):
        for value in ("\ud800", "other"):
            change: dict[str, Any] = {part: value}
            refused(replace(request, **change))
    signature = verify(request)
    for part in ("target", "timestamp", "nonce", "payload_hash", "ext", "mac"):
        for place in (0, -2):  # not the last character: its bits may all be padding
            text = [*getattr(signature, part)]
            text[place] = "8" if text[place] != "8" else "7"
            change = {part: "".join(text)}
            with pytest.raises(AuthenticationFailed):
                hawk.verify(replace(signature, **change), request, KEY, NOW)


def test_no_repr_shows_a_signature_or_a_secret() -> None:
    request = signed(replace(REQUEST, body=b"BODY"), body=b"BODY", content_type="application/json")
    shown = repr(request) + repr(hawk.read_signature(request)) + repr(with_bewit())
    shown += repr(hawk.read_signature(with_bewit(ext=EXT)))
    signature = verify(request)
    for secret in (signature.mac, signature.nonce, EXT, "BODY", "bewit=", KEY):
        assert secret not in shown
