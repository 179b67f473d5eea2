"""A ticket allows one upload. If anything in it is changed, it is not valid."""

import hashlib
import hmac

import pytest

from legacy_queue.domain.errors import AuthorizationFailed
from legacy_queue.domain.messages import message_signature
from legacy_queue.domain.tickets import Ticket, ticket_signature
from tests.domain.sample_tasks import HOUR, MS, NOW, TASK_ID

SECRET, OLD_SECRET = b"the first secret", b"an older one"
SECRETS = (SECRET, OLD_SECRET)
WHOLE = Ticket(TASK_ID, 0, "public/a%2Fb/../c d", NOW + HOUR)
PART = Ticket(TASK_ID, 1, "x" * 1024, NOW + HOUR, 3, "ab" * 32, 5 * 1024**3)
OBJECT = Ticket(TASK_ID, 1, "a", NOW + HOUR, size=7, content_type="text/plain; charset=utf-8")


@pytest.mark.parametrize("ticket", [WHOLE, PART, OBJECT], ids=["whole", "part", "object"])
@pytest.mark.parametrize("secret", SECRETS)
def test_a_ticket_is_read_back_from_its_url(ticket: Ticket, secret: bytes) -> None:
    text = ticket.text()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert Ticket.verified(text, ticket_signature(text, secret), SECRETS, NOW + HOUR - MS) == ticket


def test_an_expired_or_changed_ticket_is_refused() -> None:
    text, signature = PART.text(), ticket_signature(PART.text(), SECRET)
    with pytest.raises(AuthorizationFailed, match=r"expired at 2030-01-02T04:04:05\.678Z"):
        Ticket.verified(text, signature, SECRETS, NOW + HOUR)
    for changed in [WHOLE.text(), f"{text}x", text[:-1], "", "%", "x" * 5000]:
        with pytest.raises(AuthorizationFailed, match="not signed"):
            Ticket.verified(changed, signature, SECRETS, NOW)


def test_a_ticket_signed_with_an_unknown_secret_is_refused() -> None:
    for wrong in (
        "",
        "ä",
        ticket_signature(WHOLE.text(), b"another secret"),
        ticket_signature(WHOLE.text(), SECRET, "download"),
        ticket_signature(WHOLE.text(), SECRET)[:-1],
        message_signature(TASK_ID, 0, SECRET),
        hmac.new(SECRET, WHOLE.text().encode(), hashlib.sha256).hexdigest(),
    ):
        with pytest.raises(AuthorizationFailed, match="not signed"):
            Ticket.verified(WHOLE.text(), wrong, SECRETS, NOW)
