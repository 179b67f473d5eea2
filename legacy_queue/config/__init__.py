"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.given import Given, SettingsError, load
from legacy_queue.config.settings import AUTHORITY_FILE, DEVELOPMENT_FILE, SERVER_FILE, Settings

__all__ = ["AUTHORITY_FILE", "DEVELOPMENT_FILE", "SERVER_FILE", "Given", "Settings", "SettingsError", "load"]
