"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.settings import DEVELOPMENT_FILE, SERVER_FILE, Settings, SettingsError, load

__all__ = ["DEVELOPMENT_FILE", "SERVER_FILE", "Settings", "SettingsError", "load"]
