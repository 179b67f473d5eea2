"""What an account promises. Source: legacy_queue/ports/account.py."""

import base64
from datetime import timedelta

from legacy_queue.adapters.azure import AzureAccount
from legacy_queue.ports.account import StorageAccount
from legacy_queue.ports.queue import Queue
from tests.stores.paging import pages


def test_queues_with_a_prefix_are_listed_in_the_order_of_their_names(
    queue: Queue, account: StorageAccount
) -> None:
    names = {f"{queue.name}-b": {"of": "b"}, f"{queue.name}-a": {"of": "a", "no": "2"}, f"x{queue.name}": {}}
    for name, metadata in names.items():
        account.queue(name).create(metadata)
    assert list(account.queues(f"{queue.name}-")) == sorted(
        (name, metadata) for name, metadata in names.items() if metadata
    )
    assert [name for name, _ in account.queues(queue.name)] == sorted([queue.name, *names])[:3]
    assert list(account.queues("no-such-queue")) == []
    for name in names:
        account.queue(name).remove()


def test_a_check_creates_the_tables_and_the_container_of_an_account(
    account: StorageAccount, other: StorageAccount, table_name: str
) -> None:
    account.table(table_name)
    for _ in range(2):
        account.check()
    other.table(table_name).insert("p", "k", {})
    assert other.container.properties("name") is None
    second = account.table(f"{table_name}2")
    account.check()
    assert second.get("p", "k") is None, "tables are independent"
    assert account.table(table_name) is account.table(table_name)


def test_every_account_except_azures_shows_all_messages_visible_or_not(
    queue: Queue, account: StorageAccount, other: StorageAccount
) -> None:
    shown = other.shown_messages
    if shown is None:
        assert isinstance(account, AzureAccount)
        return
    texts = [str(number) for number in range(5)]
    first, *_ = [queue.put(text, timedelta(hours=int(text) % 2)) for text in texts]
    queue.receive(1, timedelta(hours=1))
    listed = [*pages(lambda after: shown.page(after, 2))]
    assert all(len(page) <= 2 for page in listed)
    assert sorted(text for page in listed for name, text in page if name == queue.name) == texts
    assert shown.text(queue.name, first.message_id) == "0"
    for name, message_id in ((f"{queue.name}x", first.message_id), (queue.name, "\ud800")):
        assert shown.text(name, message_id) is None


def test_an_account_shows_its_endpoints_but_not_its_key(account: StorageAccount) -> None:
    assert set(account.endpoints) == {"queue", "table", "blob"}
    for endpoint in (account.public_queues, account.public_blobs):
        assert endpoint.url.endswith(f"/{endpoint.account}")
        assert base64.b64decode(endpoint.key, validate=True)
        assert endpoint.key not in repr(endpoint)
