"""Settings. They are read once, from options, then the environment, then a TOML file: the first one wins."""

from legacy_queue.config.given_settings import GivenSettings, SettingsError, load
from legacy_queue.config.settings import AUTHORITY_FILE, DEVELOPMENT_FILE, SERVER_FILE, Settings

__all__ = [
    "AUTHORITY_FILE",
    "DEVELOPMENT_FILE",
    "SERVER_FILE",
    "GivenSettings",
    "Settings",
    "SettingsError",
    "load",
]
