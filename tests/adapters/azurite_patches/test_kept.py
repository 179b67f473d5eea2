"""A patched Azurite keeps the same data over a stop or a kill as an unpatched Azurite."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.adapters.azurite_patches.alike import assert_alike
from tests.adapters.azurite_patches.conftest import CHECK_SAVES, Pair
from tests.adapters.azurite_patches.queue_calls import message
from tests.adapters.azurite_patches.sequence import LATER, SEED, run_sequence
from tests.adapters.azurite_patches.state import documents, note_everything, stored
from tests.adapters.azurite_patches.table_calls import batch, create, entity, keys
from tests.adapters.azurite_patches.wire import Wire, quoted

_TIMEOUT = 60  # seconds; here Azurite saves every 50 ms
_CHUNK = 32  # documents at most that saves.js makes into text when one of them may have changed


def test_a_random_sequence_is_answered_and_stored_alike(pair: Pair) -> None:
    assert_alike(pair.stock, pair.patched, run_sequence, f"LEGACY_QUEUE_TEST_SEED={SEED}")
    before = assert_alike(pair.stock, pair.patched, note_everything)
    pair.stop()
    stock, patched = map(stored, pair.folders)
    assert patched == stock
    pair.restart_swapped()
    assert assert_alike(pair.stock, pair.patched, note_everything) == before


class Held:
    """A message that was received from one Azurite, before it ended."""

    def __init__(self, az: Wire) -> None:
        received = az.queue("GET", "/kept/messages", f"visibilitytimeout={LATER}")
        self.path = f"/kept/messages/{received.element('MessageId')}"
        self.receipt = received.element("PopReceipt")

    def query(self) -> str:
        return f"popreceipt={quoted(self.receipt)}&visibilitytimeout={LATER}"


def test_saved_data_survives_a_kill_and_each_azurite_reads_the_files_of_the_other(pair: Pair) -> None:
    both = (pair.stock, pair.patched)
    for az in both:
        az.queue("PUT", "/kept", headers={"x-ms-meta-colour": "blue"})
        for text in ("received", "updated", "untouched"):
            az.tick()
            az.queue("POST", "/kept/messages", "", message(text))
        az.table("POST", "/Tables", "", '{"TableName": "kept"}')
        for row in ("merged", "deleted", "untouched"):
            az.table("POST", "/kept", "", entity("p", row, n=1))
        az.blob("PUT", "/kept", "restype=container")
        az.blob(
            "PUT", "/kept/blob", "", b"content", headers={"x-ms-blob-type": "BlockBlob", "x-ms-meta-k": "v"}
        )
    pair.stop()
    pair.start()  # nothing is new to them now: what follows only changes what they have read
    both = (pair.stock, pair.patched)
    received, updated = [Held(az) for az in both], [Held(az) for az in both]
    for az, held in zip(both, updated, strict=True):
        held.receipt = az.queue("PUT", held.path, held.query(), message("new text")).header("x-ms-popreceipt")
        az.table("DELETE", keys("kept", "p", "deleted"), headers={"If-Match": "*"})
        az.table(
            "PATCH", keys("kept", "p", "merged"), "", entity("p", "merged", m=2), headers={"If-Match": "*"}
        )
        az.blob("PUT", "/kept/second", "", b"more", headers={"x-ms-blob-type": "BlockBlob"})
    before = assert_alike(pair.stock, pair.patched, note_everything)
    for folder, held in zip(pair.folders, updated, strict=True):
        wait_until_saved(folder / "__azurite_db_queue__.json", held.receipt)
        wait_until_saved(folder / "__azurite_db_table__.json", '"m":2')
        wait_until_saved(folder / "__azurite_db_blob__.json", '"second"')
    pair.each(kill)
    pair.stop()
    pair.restart_swapped()
    assert assert_alike(pair.stock, pair.patched, note_everything) == before
    go_on((pair.patched, pair.stock), received, updated)


def go_on(both: tuple[Wire, Wire], received: list[Held], updated: list[Held]) -> None:
    """The receipts from before the kill are still valid, each where its message is now."""
    for az, one, other in zip(both, received, updated, strict=True):
        answer = az.queue("PUT", other.path, other.query().replace(str(LATER), "0"))
        assert answer.status == 204, "its receipt is still valid"
        found = az.queue("GET", "/kept/messages", "numofmessages=32&visibilitytimeout=3000").body.decode()
        assert [found.count(text) for text in ("new text", "<DequeueCount>2<", "received")] == [1, 1, 0]
        assert az.queue("DELETE", one.path, f"popreceipt={quoted(one.receipt)}").status == 204


def test_a_save_serializes_only_changed_documents_including_those_changed_by_a_read(
    tmp_path: Path, azurite_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE_OPTIONS", f'--require="{CHECK_SAVES}"')
    file = tmp_path / "__azurite_db_table__.json"
    with Azurite(tmp_path, azurite_dir) as azurite:
        az = Wire(azurite.ports)
        create(az, "many")
        for hundred in range(5):
            rows = [entity("p", f"{hundred}{number:02}") for number in range(100)]
            batch(az, [("POST", "/many", row, {}) for row in rows])
        az.close()
    file.write_text(re.sub(r'"Timestamp":"[^"]*",', "", file.read_text()))
    with Azurite(tmp_path, azurite_dir) as azurite:
        az = Wire(azurite.ports)
        merge(az, "300")
        wait_until_saved(file, '"merged":"300"')
        az.table("GET", keys("many", "p", "100"))  # which sets the Timestamp in memory, without an update
        merge(az, "400")
        wait_until_saved(file, '"merged":"400"')
        az.close()
    stored_rows = {row["RowKey"]: row for row in documents(file)["devstoreaccount1$many"]}
    assert stored_rows["100"]["properties"]["Timestamp"] == stored_rows["100"]["lastModifiedTime"]
    made = [int(number) for number in re.findall(r"saved (\d+)", (tmp_path / "azurite.log").read_text())]
    assert max(made) >= len(stored_rows) == 500
    assert made[-2] <= _CHUNK
    assert made[-1] <= 2 * _CHUNK


# Has no room for the first save of what one row holds.
NO_ROOM = """
const fs = require("node:fs");
const { writev } = fs;
let refused = false;
fs.writev = (file, buffers, ...more) => {
  const isWanted = buffers.some((one) => one.includes('"merged":"first"'));
  if (refused || !isWanted) return writev(file, buffers, ...more);
  refused = true;
  console.log("no room");
  more.at(-1)(Object.assign(new Error("no space left on device"), { code: "ENOSPC" }));
};
"""


def test_a_failed_save_leaves_the_last_file_and_the_next_save_is_complete(
    tmp_path: Path, azurite_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_room.js").write_text(NO_ROOM)
    monkeypatch.setenv("NODE_OPTIONS", f'--require="{CHECK_SAVES}" --require="{tmp_path}/no_room.js"')
    file = tmp_path / "data/__azurite_db_table__.json"
    with Azurite(tmp_path / "data", azurite_dir) as azurite:
        az = Wire(azurite.ports)
        create(az, "many")
        for row in ("first", "second"):
            az.table("POST", "/many", "", entity("p", row))
        wait_until_saved(file, '"second"')
        merge(az, "first")
        wait_until_saved(tmp_path / "data/azurite.log", "no room")
        assert '"merged"' not in file.read_text()
        merge(az, "second")
        wait_until_saved(file, '"merged":"second"')
        assert '"merged":"first"' in file.read_text()
        az.close()


def merge(az: Wire, row: str) -> None:
    body = entity("p", row, merged=row)
    az.table("PATCH", keys("many", "p", row), "", body, headers={"If-Match": "*"})


# Says when texts reach the disk and when an index of them is saved, and has no room for one of the texts.
WATCHED = """
const fs = require("node:fs");
const { fdatasync, rename, writeSync } = fs;
fs.fdatasync = (fd, done) => fdatasync(fd, (error) => (console.log("texts synced"), done(error)));
fs.rename = (from, to, done) => {
  if (to.includes("_db_queue__")) console.log("index saved");
  rename(from, to, done);
};
fs.writeSync = (fd, data, start) => {
  if (!data.includes("half of it is written")) return writeSync(fd, data, start);
  writeSync(fd, data.subarray(0, 10));
  throw Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
};
"""


def test_a_text_is_synced_before_its_index_and_a_failed_write_damages_no_other(
    tmp_path: Path, azurite_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched.js").write_text(WATCHED)
    monkeypatch.setenv("NODE_OPTIONS", f'--require="{tmp_path}/watched.js"')
    texts = ["before", "half of it is written", "after"]
    with Azurite(tmp_path / "data", azurite_dir) as azurite:
        az = Wire(azurite.ports)
        az.queue("PUT", "/room")
        put = [az.queue("POST", "/room/messages", "", message(text)).status for text in texts]
        az.close()
    assert put == [201, 500, 201]
    said = (tmp_path / "data/azurite.log").read_text().splitlines()
    assert [line for line in said if line in ("texts synced", "index saved")][-2:] == [
        "texts synced",
        "index saved",
    ]
    with Azurite(tmp_path / "data", azurite_dir) as azurite:  # which reads them from the file
        az = Wire(azurite.ports)
        found = az.queue("GET", "/room/messages", "numofmessages=32").body.decode()
        az.close()
    assert [f"<MessageText>{text}<" in found for text in texts] == [True, False, True]


def wait_until_saved(file: Path, text: str) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while text not in file.read_text():
        assert time.monotonic() < deadline, f"it was not saved in {file}"
        time.sleep(0.05)


def kill(azurite: Azurite) -> None:
    os.kill(azurite.pid or 0, signal.SIGKILL)
    while azurite.alive():
        time.sleep(0.01)
