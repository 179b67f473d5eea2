"""gunicorn's own words, as lines of the same log as all others."""

import logging
from typing import Any

from gunicorn.glogging import Logger

from legacy_queue.cli.logs import ToStructlog


class ServerLogger(Logger):
    """Warnings and worse go to structlog, and to nobody else."""

    def setup(self, cfg: Any) -> None:
        """As gunicorn does, with another handler."""
        super().setup(cfg)
        self.error_log.handlers = [ToStructlog()]
        self.error_log.propagate = False
        self.error_log.setLevel(logging.WARNING)
