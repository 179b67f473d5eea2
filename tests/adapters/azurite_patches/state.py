"""The whole state of an Azurite, from its API and its files."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.adapters.azurite_patches.normal import text
from tests.adapters.azurite_patches.wire import FULL, Wire, quoted

_QUEUES = "__azurite_db_queue__.json"
_TABLES = "__azurite_db_table__.json"


def note_everything(az: Wire) -> None:
    """Adds queues, visible messages, rows, containers and blobs to the transcript."""
    for name in _names(az.queue("GET", "/", "comp=list&include=metadata").body):
        az.queue("GET", f"/{name}", "comp=metadata")
        az.queue("GET", f"/{name}/messages", "peekonly=true&numofmessages=32")
    for table in json.loads(az.table("GET", "/Tables").body)["value"]:
        following = ""
        while True:
            page = az.table("GET", f"/{table['TableName']}()", following, headers={"Accept": FULL})
            found = dict(page.headers)
            if "x-ms-continuation-nextrowkey" not in found:
                break
            words = ("partitionkey", "rowkey")
            following = "&".join(
                f"Next{word}={quoted(found[f'x-ms-continuation-next{word}'])}" for word in words
            )
            following = following.replace("partitionkey", "PartitionKey").replace("rowkey", "RowKey")
    for container in _names(az.blob("GET", "/", "comp=list").body):
        for blob in _names(
            az.blob("GET", f"/{container}", "restype=container&comp=list&include=metadata").body
        ):
            az.blob("GET", f"/{container}/{quoted(blob)}")


def stored(folder: Path) -> dict[str, Any]:
    """The contents of a stopped Azurite's files: all messages, visible or not, with their texts."""
    messages = []
    for one in documents(folder / _QUEUES)["$MESSAGES_COLLECTION$"]:
        seconds = round((one["timeNextVisible"] - _milliseconds(one["insertionTime"])) / 1000, -2)
        messages.append((one["queueName"], seconds, one["dequeueCount"], _text(folder, one["persistency"])))
    tables = {name: [_shape(one) for one in rows] for name, rows in documents(folder / _TABLES).items()}
    return {"messages": sorted(messages), "tables": {name: sorted(rows) for name, rows in tables.items()}}


def _names(listed: bytes) -> list[str]:
    found = ElementTree.fromstring(listed.decode("utf-8-sig"))
    return [
        name.text or ""
        for kind in ("Queue", "Container", "Blob")
        for name in found.findall(f".//{kind}/Name")
    ]


def documents(file: Path) -> dict[str, list[dict[str, Any]]]:
    """What a saved database holds, by the names of its collections."""
    return {one["name"]: one["data"] for one in json.loads(file.read_text())["collections"]}


def _shape(document: dict[str, Any]) -> str:
    kept = {name: value for name, value in document.items() if name not in ("meta", "$loki")}
    return text(json.dumps(kept, sort_keys=True))


def _milliseconds(iso: str) -> float:
    return datetime.fromisoformat(iso).timestamp() * 1000


def _text(folder: Path, place: dict[str, Any]) -> str:
    if place["count"] == 0:
        return ""
    with (folder / "__queuestorage__" / place["id"]).open("rb") as file:
        file.seek(place["offset"])
        return re.sub(r"(.{40}).*", r"\1...", file.read(place["count"]).decode(errors="replace"))
