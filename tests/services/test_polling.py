"""pollTaskUrls. The tests in tests/stores show that the URLs work."""

from urllib.parse import parse_qs, urlsplit

from tests.services.harness import PROVISIONER, WORKER_TYPE, Harness


def test_the_urls_are_valid_from_15_minutes_ago_for_30_minutes_from_now() -> None:
    answer = Harness().services.polling.poll_urls(PROVISIONER, WORKER_TYPE, "client")
    assert answer["expires"] == "2030-01-02T03:34:05.678Z"
    for queue in answer["queues"]:
        query = parse_qs(urlsplit(queue["signedPollUrl"]).query)
        assert query["visibilitytimeout"] == ["300"]
        assert query["st"][0].startswith("2030-01-02T02:49:0")
        assert query["se"][0].startswith("2030-01-02T03:34:0")
