"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.development import DEVELOPMENT_FILE, SERVER_FILE, complete
from legacy_queue.config.settings import Settings, SettingsError, load

__all__ = ["DEVELOPMENT_FILE", "SERVER_FILE", "Settings", "SettingsError", "complete", "load"]
