"""The caller of pollTaskUrls in a signed URL."""

import re

import pytest

from legacy_queue.domain.poll_caller import poll_caller, poll_policy


@pytest.mark.parametrize("caller", ["a", "a/client@c:d.e+f|g_-", "é?&=% ", "x" * 255])
def test_a_policy_names_the_caller_in_characters_that_no_client_encodes(caller: str) -> None:
    policy = poll_policy(caller)
    assert re.fullmatch("[A-Za-z0-9._-]+", policy)
    assert poll_caller(policy) == caller


@pytest.mark.parametrize("policy", ["policy", "YQ", ""])
def test_another_policy_names_nobody(policy: str) -> None:
    with pytest.raises(ValueError, match="names no caller"):
        poll_caller(policy)
