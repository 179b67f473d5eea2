"""gunicorn's own words, as lines of the same log as all others."""

import logging
from typing import Any

import structlog
from gunicorn.glogging import Logger


class ServerLogger(Logger):
    """Warnings and worse go to structlog, and to nobody else."""

    def setup(self, cfg: Any) -> None:
        """As gunicorn does, with another handler."""
        super().setup(cfg)
        self.error_log.handlers = [_ToStructlog()]
        self.error_log.propagate = False
        self.error_log.setLevel(logging.WARNING)


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger("gunicorn").log(
            record.levelno, record.getMessage(), exc_info=record.exc_info or None
        )
