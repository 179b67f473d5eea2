"""The requests that Hawk must refuse, all in the same way: examples, and generated requests."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from legacy_queue.domain import hawk
from legacy_queue.domain.errors import AuthenticationFailed
from legacy_queue.domain.hawk import SignedRequest
from tests.domain.signing import (
    EXT,
    KEY,
    NOW,
    REQUEST,
    TARGET,
    refused,
    signed,
    unreadable,
    verify,
    with_bewit,
)


def encoded(*parts: str) -> str:
    return base64.urlsafe_b64encode("\\".join(parts).encode()).decode()


@pytest.mark.parametrize(
    "bewit",
    [
        "",
        "!",
        "%ff",
        encoded("a", "1", "mac", "", ""),
        encoded("", "1", "mac", ""),
        encoded("a", "1.5", "mac", ""),
        encoded("a", "9" * 16, "mac", ""),
        encoded("a", "1", "", ""),
        encoded("a", "1", "mac", "\n"),
        encoded("a", "1", "mac", "é"),
        encoded("a", "1", "mac", "x" * hawk.MAX_LENGTH),
    ],
)
def test_a_malformed_bewit_is_refused(bewit: str) -> None:
    unreadable(replace(with_bewit(), target=f"/p?bewit={bewit}"))


FIELDS = {"id": "a", "ts": "1520139967", "nonce": "n", "mac": "m"}
GOOD = ", ".join(f'{name}="{value}"' for name, value in FIELDS.items())


def test_the_fields_of_a_header_may_have_any_order_and_spacing() -> None:
    for header in (f"hAWK {GOOD}", 'Hawk   mac="m" ,nonce="n",ts="1" ,  id="a" '):
        signature = hawk.read_signature(replace(REQUEST, authorization=header))
        assert signature is not None
        assert (signature.client_id, signature.nonce, signature.mac) == ("a", "n", "m")


@pytest.mark.parametrize(
    "header",
    [
        "Hawk ",
        f"Bearer {GOOD}",
        *(f"Hawk {GOOD}".replace(f'{name}="{FIELDS[name]}"', f'{name}=""') for name in FIELDS),
        *(f'Hawk {GOOD}, {name}="{FIELDS[name]}"' for name in FIELDS),
        f'Hawk {GOOD}, tsm="a"',
        f'Hawk {GOOD}, ="a"',
        f"Hawk {GOOD},",
        f"Hawk {GOOD} x",
        f'Hawk {GOOD}, ext="a',
        f'Hawk {GOOD}, ext="a\\"b"',
        f'Hawk {GOOD}, ext="é"',
        f'Hawk {GOOD}, ext="\ud800"',
        f"Hawk {GOOD}, ext=a",
        f'Hawk {GOOD} ext="a"',
        f'Hawk ,{GOOD}, ext="a"',
        f"Hawk {GOOD}".replace("1520139967", "x"),
        f"Hawk {GOOD}".replace("1520139967", "1520139967.5"),
        f"Hawk {GOOD}".replace("1520139967", "9" * 16),
        f'Hawk {GOOD}, ext="{"x" * hawk.MAX_LENGTH}"',
        "Hawk " + '"' * 60_000,
        "Hawk " + 'id="a",' * 9_000,
    ],
)
def test_a_malformed_header_is_refused(header: str) -> None:
    unreadable(replace(REQUEST, authorization=header))


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


def replaced(text: str, at: int, character: str) -> str:
    at %= len(text)
    return text[:at] + character + text[at + 1 :]


@pytest.mark.parametrize("part", ["target", "timestamp", "nonce", "payload_hash", "ext", "mac"])
@given(at=st.integers(0, 200), character=st.characters(min_codepoint=0x21, max_codepoint=0x7E))
def test_a_changed_character_in_a_signed_field_is_refused(part: str, at: int, character: str) -> None:
    request = signed(body=REQUEST.body, content_type="application/json")
    signature = verify(request)
    changed = replaced(getattr(signature, part), at, character)
    assume(changed != getattr(signature, part) and (part != "timestamp" or character.isdecimal()))
    change: dict[str, Any] = {part: changed}
    with pytest.raises(AuthenticationFailed):
        hawk.verify(replace(signature, **change), request, KEY, NOW)


def test_a_request_with_another_part_is_refused() -> None:
    request = signed(body=REQUEST.body, content_type="application/json")
    for part in ("method", "target", "host", "content_type"):
        for value in ("\ud800", "other"):
            change: dict[str, Any] = {part: value}
            refused(replace(request, **change))


def test_no_repr_shows_a_signature_or_a_secret() -> None:
    request = signed(replace(REQUEST, body=b"BODY"), body=b"BODY", content_type="application/json")
    shown = repr(request) + repr(hawk.read_signature(request)) + repr(with_bewit())
    shown += repr(hawk.read_signature(with_bewit(ext=EXT)))
    signature = verify(request)
    for secret in (signature.mac, signature.nonce, EXT, "BODY", "bewit=", KEY):
        assert secret not in shown
