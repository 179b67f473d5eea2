"""Identifiers and their rules. Source: docs/explanation/http-contract.md#identifiers."""

import base64
import secrets

TASK_ID = r"[A-Za-z0-9_-]{8}[Q-T][A-Za-z0-9_-][CGKOSWaeimquy26-][A-Za-z0-9_-]{10}[AQgw]"
# provisionerId, workerType, schedulerId, workerGroup, workerId: with the maximum length of today's queue
IDENTIFIER = r"[a-zA-Z0-9-_]{1,38}"
TASK_QUEUE_ID = f"{IDENTIFIER}/{IDENTIFIER}"  # <provisionerId>/<workerType>
TODAYS_TASK_QUEUE_ID = f"{IDENTIFIER}/[a-z](?:[-a-z0-9]{{0,36}}[a-z0-9])?"
PROJECT_ID = r"[a-zA-Z0-9._/-]{1,500}"
RUN_ID = r"(?:1000|[1-9][0-9]{0,2}|0)"

# what an error says in place of the pattern, which is a riddle to most people
IN_WORDS = {
    TASK_ID: "a slugid: 22 characters such as VHL2gBZ2SI-u8RFuhXZJvQ",
    IDENTIFIER: "1 to 38 letters, digits, hyphens and underscores",
    TASK_QUEUE_ID: "<provisionerId>/<workerType>, each 1 to 38 letters, digits, hyphens and underscores",
    RUN_ID: "a number from 0 to 1000",
}

MAX_RUNS = 50  # of a task

RunKey = tuple[str, int]  # taskId and runId


def slugid() -> str:
    """A new taskId: a version 4 UUID in URL-safe base64, 22 characters, never starting with ``-``."""
    raw = bytearray(secrets.token_bytes(16))
    raw[0] &= 0x7F
    raw[6] = raw[6] & 0x0F | 0x40  # the version
    raw[8] = raw[8] & 0x3F | 0x80  # the variant of all UUIDs of RFC 9562
    return base64.urlsafe_b64encode(raw).decode()[:22]
