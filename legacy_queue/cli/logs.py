"""Logs: one line of JSON for each event, on standard error."""

import logging
import sys

import structlog


def log_to_standard_error() -> None:
    """Set structlog up; what libraries log by themselves is shown from warnings on."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
