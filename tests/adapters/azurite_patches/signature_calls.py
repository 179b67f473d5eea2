"""Who may ask: keys, and the signatures of queues, tables and accounts, good and bad."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableSasPermissions, generate_table_sas
from azure.storage.queue import (
    AccountSasPermissions,
    QueueSasPermissions,
    ResourceTypes,
    generate_account_sas,
    generate_queue_sas,
)

from legacy_queue.adapters.azurite import ACCOUNT, ACCOUNT_KEY
from tests.adapters.azurite_patches.queue_calls import message, put
from tests.adapters.azurite_patches.table_calls import create, entity, keys
from tests.adapters.azurite_patches.wire import Wire

_NOW = datetime.now(UTC)
_LATER = _NOW + timedelta(days=1)


def queue_signatures(az: Wire) -> None:
    az.queue("PUT", "/signed")
    az.queue("PUT", "/signed-2")
    put(az, "signed")
    given: dict[str, Any] = {
        "account_name": ACCOUNT,
        "queue_name": "signed",
        "account_key": ACCOUNT_KEY,
        "expiry": _LATER,
    }
    for permission in ("r", "a", "u", "p", "raup"):
        sas = generate_queue_sas(**given, permission=QueueSasPermissions.from_string(permission))
        _use(az, sas)
    process = QueueSasPermissions(process=True)
    changes: Sequence[dict[str, Any]] = (
        {"expiry": _NOW - timedelta(minutes=1)},
        {"start": _NOW + timedelta(hours=1)},
        {"start": _NOW - timedelta(hours=1)},
        {"protocol": "https"},
        {"protocol": "https,http"},
        {"ip": "1.2.3.4"},
        {"policy_id": "none"},
        {"queue_name": "signed-2"},
        {"account_key": "a2V5"},
    )
    for changed in changes:
        _use(az, generate_queue_sas(**given | changed, permission=process))
    good = generate_queue_sas(**given, permission=process)
    for bad in (
        good.replace("sp=p", "sp=raup"),
        good.replace("sig=", "sig=A"),
        good.replace("se=20", "se=21"),
        good.replace("sv=", "sv=x"),
        good.replace("sig=", "sig=%"),
        good.replace("sp=p", "sp="),
        good.replace("sp=p&", ""),
        f"{good}&sp=p",
        f"{good}&sp[]=p",
        f"{good}&spr=",
        f"{good}&si=",
        f"{good}&&",
        f"{good}#fragment",
        good.partition("sig=")[0],
    ):
        az.queue("GET", "/signed/messages", f"visibilitytimeout=3000&{bad}", sign="")


def _use(az: Wire, sas: str) -> None:
    az.tick()
    az.queue("GET", "/signed/messages", f"numofmessages=2&visibilitytimeout=3000&{sas}", sign="")
    az.queue("GET", "/signed/messages", f"peekonly=true&{sas}", sign="")
    az.queue("POST", "/signed/messages", sas, message("new"), sign="")
    az.queue("PUT", "/signed/messages/x", f"popreceipt=x&visibilitytimeout=0&{sas}", sign="")
    az.queue("DELETE", "/signed/messages/x", f"popreceipt=x&{sas}", sign="")
    az.queue("DELETE", "/signed/messages", sas, sign="")
    az.queue("GET", "/signed", f"comp=metadata&{sas}", sign="")
    az.queue("GET", "/signed-2/messages", sas, sign="")
    az.queue("GET", "/not-there/messages", sas, sign="")


def account_signatures(az: Wire) -> None:
    az.queue("PUT", "/signed")
    every = ResourceTypes(service=True, container=True, object=True)
    for types in (every, ResourceTypes(object=True), ResourceTypes(container=True)):
        for permission in ("rwdlacup", "p"):
            allowed = permissions(permission)
            for services in ("bqt", "b"):
                sas = account_sas(types, allowed, services)
                _use(az, sas)
                az.table("GET", "/notthere()", sas, sign="")
    sas = account_sas(every, permissions("rwdlacup"), "bqt")
    az.queue("GET", "/signed/messages", sas, sign="", account="another")
    az.queue("GET", "/signed/messages", f"{sas}&spr=", sign="")
    az.queue("GET", "/signed/messages", f"{sas}&spr=https", sign="")
    az.queue("GET", "/signed/messages", sas, sign="SharedKey")
    az.queue(
        "GET", "/signed/messages", sas, sign="", headers={"Authorization": "SharedKey devstoreaccount1:bad"}
    )


def permissions(letters: str) -> AccountSasPermissions:
    names = {"r": "read", "w": "write", "d": "delete", "l": "list", "a": "add", "c": "create", "u": "update"}
    return AccountSasPermissions(
        **{name: letter in letters for letter, name in names.items()}, process="p" in letters
    )


def account_sas(types: ResourceTypes, permission: AccountSasPermissions, services: str) -> str:
    return generate_account_sas(ACCOUNT, ACCOUNT_KEY, types, permission, _LATER, services=services)


def a_signature_that_expires_after_it_was_accepted(az: Wire) -> None:
    az.queue("PUT", "/expiring-signature")
    soon = datetime.now(UTC) + timedelta(seconds=1)
    permission = AccountSasPermissions(process=True)
    sas = generate_account_sas(
        ACCOUNT, ACCOUNT_KEY, ResourceTypes(object=True), permission, soon, services="q"
    )
    path = "/expiring-signature/messages"
    az.until(lambda: az.unrecorded("GET", path, sas, sign="").status == 403)
    az.queue("GET", path, sas, sign="")


def shared_keys(az: Wire) -> None:
    az.queue("PUT", "/keys")
    for sign in ("SharedKey", "SharedKeyLite", ""):
        az.tick()
        az.queue("POST", "/keys/messages", "", message("x"), sign=sign)
        az.queue("GET", "/keys/messages", "visibilitytimeout=3000", sign=sign)
    for value in (
        "",
        "SharedKey",
        "SharedKey devstoreaccount1",
        "SharedKey devstoreaccount1:x",
        "Bearer abc",
        "Basic eA==",
    ):
        az.queue("GET", "/keys/messages", headers={"Authorization": value}, sign="")
    az.queue("GET", "/keys/messages", account="another")
    az.queue("GET", "/keys/messages", account=f"{ACCOUNT}-secondary")
    az.queue("GET", "/keys/messages", account=ACCOUNT.upper())


def table_signatures(az: Wire) -> None:
    create(az, "signed")
    key = AzureNamedKeyCredential(ACCOUNT, ACCOUNT_KEY)
    later = datetime.now(UTC) + timedelta(days=1)
    for number, permission in enumerate(("r", "a", "u", "d", "raud")):
        sas = generate_table_sas(
            key, "signed", permission=TableSasPermissions.from_string(permission), expiry=later
        )
        for query in (sas, sas.replace("sig=", "sig=A"), sas.replace("sp=", "sp=x")):
            az.table("POST", "/signed", query, entity("p", str(number)), sign="")
            az.table("GET", "/signed()", query, sign="")
            az.table("GET", keys("signed", "p", str(number)), query, sign="")
            az.table("PATCH", keys("signed", "p", str(number)), query, entity("p", str(number), n=1), sign="")
            az.table("DELETE", keys("signed", "p", "none"), query, headers={"If-Match": "*"}, sign="")
    for sign in ("SharedKey", "SharedKeyLite", ""):
        az.table("POST", "/signed", "", entity("sign", sign), sign=sign)
        az.table("GET", "/signed()", sign=sign)
    for value in ("", "SharedKeyLite", "SharedKeyLite devstoreaccount1:x", "Bearer abc"):
        az.table("GET", "/signed()", headers={"Authorization": value}, sign="")
    az.table("GET", "/signed()", account="another")
    az.table("GET", "/signed()", account=f"{ACCOUNT}-secondary")
