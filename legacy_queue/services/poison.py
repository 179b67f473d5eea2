"""Messages that cannot be handled are set aside: never lost, never in the way."""

import json
from contextlib import suppress
from datetime import timedelta

import structlog

from legacy_queue.ports import LeaseLost
from legacy_queue.stores import OwnQueues, ReceivedMessage

log = structlog.get_logger()

POISON = "poison"  # the queue in which somebody finds them

_LONGEST = 8 * 1024  # characters: in JSON and XML each may take six bytes
_LONGEST_WHY = 200


def set_aside(queues: OwnQueues, name: str, message: ReceivedMessage, why: str) -> None:
    """Move the message to the queue ``<prefix>-poison``, as JSON ``{queue, text, why}``, and log an error.

    Of a text that no server of this kind has written, being longer, the beginning is kept.
    """
    text, why = message.text[:_LONGEST], why[:_LONGEST_WHY]
    queues.put(POISON, json.dumps({"queue": name, "text": text, "why": why}), timedelta(0))
    log.error("message-set-aside", queue=name, message_id=message.lease.message_id, why=why)
    with suppress(LeaseLost):
        queues.remove(name, message.lease)
