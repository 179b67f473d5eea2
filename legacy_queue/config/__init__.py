"""Settings: read once, from options, the environment and a TOML file, in this order of precedence."""

from legacy_queue.config.development import complete
from legacy_queue.config.settings import Settings, SettingsError, load

__all__ = ["Settings", "SettingsError", "complete", "load"]
