"""A signed URL names the caller who got it from pollTaskUrls."""

import re

import pytest

from legacy_queue.domain.poll_caller import poll_caller, poll_policy


def test_a_signed_url_names_its_caller_in_characters_that_no_client_percent_encodes() -> None:
    for caller in ("a", "a/client@c:d.e+f|g_-", "é?&=% ", "x" * 255):
        policy = poll_policy(caller)
        assert re.fullmatch("[A-Za-z0-9._-]+", policy)
        assert poll_caller(policy) == caller
    for another in ("policy", "YQ", ""):
        with pytest.raises(ValueError, match="names no caller"):
            poll_caller(another)
