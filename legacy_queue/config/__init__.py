"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.settings import (
    AUTHORITY_FILE,
    DEVELOPMENT_FILE,
    SERVER_FILE,
    Settings,
    SettingsError,
    load,
)

__all__ = ["AUTHORITY_FILE", "DEVELOPMENT_FILE", "SERVER_FILE", "Settings", "SettingsError", "load"]
