"""Each type of value: what it accepts and what it refuses."""

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from legacy_queue.config import values
from legacy_queue.domain.authentication import Client
from legacy_queue.domain.scopes import OPEN_READS
from tests.domain.sample_tasks import DAY, MINUTE, SECOND

TOKEN = "t" * 22
LONG = "t" * 128


def client(**changes: Any) -> dict[str, Any]:
    return {"a": {"accessToken": TOKEN, "scopes": ["s"], **changes}}


@pytest.mark.parametrize(
    ("parsed", "given", "value"),
    [
        (values.port, "0", 0),
        (values.port, 65535, 65535),
        *((values.flag, yes, True) for yes in (True, "true", "True", "1", 1, "yes", "YES")),
        *((values.flag, no, False) for no in (False, "false", "FALSE", "0", 0, "no")),
        (values.duration, "3m31s", 3 * MINUTE + 31 * SECOND),
        (values.duration, "5d", 5 * DAY),
        (values.sas_life, "6m", 6 * MINUTE),
        (values.claim_work_wait, "20s", 20 * SECOND),
        (values.prefix, "abcdefghij1", "abcdefghij1"),
        (values.azure_url, "https://acc.queue.core.chinacloudapi.cn/", "https://acc.queue.core.chinacloudapi.cn"),
        (values.networks, "10.0.0.0/8,127.0.0.1", (ip_network("10.0.0.0/8"), ip_network("127.0.0.1"))),
        (values.tls_names, "Queue.Example.COM,2001:DB8:0::1", ("queue.example.com", "2001:db8::1")),
        (values.hosts, "Queue.example.com,*,*.B.c", ("queue.example.com", "*", "*.b.c")),
        *((values.origins, word, (word,)) for word in ("auto", "none", "*")),
        (values.origins, "https://a.example.com,http://[::1]:81", ("https://a.example.com", "http://[::1]:81")),
        (values.url, "https://h:1/", "https://h:1"),
        (values.url, "https://[::1]:1/a/b/", "https://[::1]:1/a/b"),
        (values.clients, client(), (Client("a", TOKEN, ("s",)),)),
        (values.clients, client(accessToken=LONG, scopes=[]), (Client("a", LONG, ()),)),
        (values.clients, {"a/b@c:d.e+f|g_-": client()["a"]}, (Client("a/b@c:d.e+f|g_-", TOKEN, ("s",)),)),
        (values.anonymous_scopes, "reads", OPEN_READS),
        (values.anonymous_scopes, "none", ()),
        (values.anonymous_scopes, ["queue:status:a,b"], ("queue:status:a,b",)),
        (values.roles, '{"a:*": []}', {"a:*": ()}),
        (values.secrets, f"{TOKEN},{LONG}", (TOKEN, LONG)),
        (values.secrets, f"{TOKEN},", (TOKEN,)),
        (values.secrets, f'["{TOKEN}", "{LONG}"]', (TOKEN, LONG)),
        (values.policies, '{"p/w": "required", "-/_": "optional"}', {"p/w": "required", "-/_": "optional"}),
        *((values.amqp_url, url, url) for url in ("amqp://[::1]:5672//", "amqps://u:p%40@h:1/v")),
        *((values.project, name, name) for name in ("a", "taskcluster-queue", "_-" * 32)),
        (values.path, "~", Path.home()),
    ],
)  # fmt: skip
def test_an_accepted_value_is_parsed(parsed: values.Value, given: Any, value: Any) -> None:
    assert parsed.parse(given) == value
    assert type(parsed.parse(given)) is type(value)


REFUSED: dict[values.Value, list[Any]] = {
    values.text: ["", 1, None, [], {}, True],
    values.port: ["", "65536", "-1", "100000", "8080 ", "8080\n", "x", 1.5, True, [80]],
    values.count: ["", 0, "0", "-1", "1000", "01", "1.0", True, "x"],
    values.flag: ["", "on", "off", "t", 2, None, "true ", []],
    values.duration: [
        *("", 20, "20", "0s", "-1s", "1.5m", "1 m", "1w", "1M", "1s30m", "m", "500ms", "1s1ms", "1s\n", None),
        *("432001s", "6d", "121h", "99999999s"),
    ],
    values.sas_life: ["359s", "5m", "1s", "6d", "x"],
    values.one_of("a", "b"): ["", "A", "c", None, 1, ["a"]],
    values.prefix: ["", "A", "1a", "a-b", "abcdefghij12", "a\n", "\u00e4", 1],
    values.url: [
        *("", "h", "ftp://h", "http://", "http:///a", "http://h?a", "http://h#a", "http://h/a b"),
        *("http://h/{x}", "HTTP//h", " http://h", 1, "http://h\n"),
    ],
    values.claim_work_wait: ["21s", "-1s"],
    values.account: ["ab", "Acc", "b a d"],
    values.azure_url: ["http://acc.queue.core.windows.net", "https://h?sig=a", "b a d"],
    values.proxy: ["https://proxy:3128", "http://user:password@proxy:3128"],
    values.networks: ["true", "proxy.example.com", "10.0.0.1/8", "10.0.0.0/33", ""],
    values.tls_names: [
        *(["*.example.com"], ["fe80::1%eth0"], ["[::1]"], ["queue.example.com:443"]),
        *(["b\u00fccher.de"], ["a."], {"a": "b"}, "b a d"),
    ],
    values.hosts: ["b a d", "a.*", "h:80"],
    values.origins: ["b a d", "https://h/path", "auto,none"],
    values.clients: [
        *([], "", "x", 1, None, {"a": 1}, {"a": {}}, "[" * 100_000),
        *({client_id: client()["a"]} for client_id in ("", "a b", "a\\", "\u00e4", '"')),
        *(client(accessToken=token) for token in ("t" * 21, "t" * 129, 1, f"{TOKEN}\n", "\u00e4" * 22)),
        *(client(scopes=scopes) for scopes in ("*", [1], ["\u00e4"], None)),
        client(more=1),
    ],
    values.anonymous_scopes: ["*", "queue:create-task:*", ["queue:status:é"], "", "read", {}, None],
    values.roles: [[], "x", {"a": "b"}, {"a": [1]}, {"a": {"scopes": []}}, None],
    values.secrets: [
        *("t" * 21, f"{TOKEN},short", f"{TOKEN}, {TOKEN}", f"{TOKEN} ", "\u00e4" * 22, "\udcff" * 22),
        *("[", f'{{"a": "{TOKEN}"}}', ["short"], [TOKEN, 1], {"a": TOKEN}, 1, None),
    ],
    values.policies: [
        *([], "x", {"p": "required"}, {"p/w/x": "required"}, {"/w": "required"}, {"p /w": "required"}),
        *({"p/w": policy} for policy in ("always", "", True, None)),
    ],
    values.amqp_url: [
        *("", "h", "amqp:///v", "amqp://:5672", "http://h", "amqp://h:0", "amqp://h:65536", "amqp://h?a=1"),
        *("amqp://u:p/q@h", "amqp://h:x", "amqp://h ", "amqp://\u00e4", "amqp://[h", 1, None),
    ],
    values.project: ["", "a b", "a.b", "a/b", "p" * 65, "a\n", "\u00e4", None, []],
    values.path: ["", 1, None, [], "~no-such-user/x"],
}


@pytest.mark.parametrize("refusing", REFUSED)
def test_a_bad_value_is_refused(refusing: values.Value) -> None:
    for bad in REFUSED[refusing]:
        with pytest.raises(ValueError, match="expected "):
            refusing.parse(bad)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://queue:S3CRET@rabbit.example.com/vhost", "amqp://queue:***@rabbit.example.com/vhost"),
        ("amqp://q:S3CRET:S3CRET@S3CRET@rabbit", "amqp://q:***@rabbit"),
        ("amqp://S3CRET@rabbit", "amqp://***@rabbit"),
        ("amqp://rabbit:5672/vhost", "amqp://rabbit:5672/vhost"),
        ("https:/u:S3CRET/@h", "https:***@h"),
        ("user:S3CRET@h", "user:***@h"),
        ("http://h/c?sv=1&sig=S3CRET", "http://h/c?***"),
    ],
)
def test_passwords_and_queries_of_urls_are_masked_in_messages(text: str, shown: str) -> None:
    assert values.without_secrets(text) == shown
