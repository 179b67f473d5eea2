"""Logs: one line of JSON for each event, on standard error."""

import logging
import sys
from datetime import datetime

import structlog

from legacy_queue.domain.times import format_time


def log_to_standard_error() -> None:
    """Set structlog up; what libraries log by themselves is shown from warnings on."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # under load it warns of each connection that it does not keep
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=_plain),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _plain(value: object) -> str:
    return format_time(value) if isinstance(value, datetime) else str(value)
