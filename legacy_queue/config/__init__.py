"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.settings import Settings, SettingsError, complete, load

__all__ = ["Settings", "SettingsError", "complete", "load"]
