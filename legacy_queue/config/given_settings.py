"""The settings that a command is given: by options, then the environment, then a TOML file.

Click reads them. An error about an unknown name says which setting is nearest, or what replaces a removed
one. An error about a value says where the value is from. Secrets never appear in a repr or a message.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import Field, replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from legacy_queue.config import values
from legacy_queue.config.conflicts import conflicts
from legacy_queue.config.removed_settings import REMOVED
from legacy_queue.config.settings import DECLARED, Settings, wire_name

PREFIX = "LEGACY_QUEUE_"
CONFIG = "config"  # the setting that names the TOML file: an option and a variable, like the others
READS_VARIABLES = {"auto_envvar_prefix": PREFIX.rstrip("_")}  # for the context_settings of a command
_MAX_METAVAR = 20  # characters, so that the help fits into 80 columns
# these belong to the commands that call a queue, and to the test kit
_CLIENT_VARIABLES = ("root-url", "base-url", "python")
_SETTINGS = {wire_name(setting.name): setting for setting in DECLARED}


class SettingsError(click.ClickException):
    """Says what is wrong with the settings and what was expected. It ends a command."""


class GivenSettings:
    """The settings that are given. All members use the names of the fields of Settings.

    ``texts`` has the settings of the command line, as they are written there. ``sources`` says where each
    setting is from: an option, a variable, or a key and its line in the file.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    def settings(self) -> Settings:
        """The settings in force. Raises SettingsError if two of them contradict each other."""
        settings = Settings(**self._values)
        for problem in conflicts(settings):
            raise SettingsError(problem)
        return settings

    def take(self, name: str, source: str, value: Any) -> None:
        """Parse a value that comes from this source. Raises SettingsError."""
        setting = _SETTINGS[wire_name(name)].metadata
        try:
            self._values[name] = setting["type"].parse(value)
        except ValueError as error:
            shown = "" if setting["secret"] else f" is {values.without_secrets(str(value))[:200]!r}"
            raise SettingsError(f"{source}{shown}: {error}") from None
        self.sources[name] = source

    def set(self, name: str, text: str) -> None:
        """Set a setting as its option would."""
        self.texts[name] = text
        self.take(name, _option(wire_name(name)), text)

    def turn_on_control(self) -> None:
        """Turn ``control`` on, unless it is given or another setting excludes it. Raises SettingsError."""
        controlled = replace(self.settings(), control=True)
        if "control" not in self.sources and not any(conflicts(controlled)):
            self.set("control", "true")


class _SettingOption(click.Option):
    """The option, the variable and the key of a setting. Its value goes to GivenSettings of the context."""

    def __init__(self, setting: Field[Any]) -> None:
        value_type: values.Value = setting.metadata["type"]
        default = setting.metadata["default"]
        more: dict[str, Any] = {}
        if value_type is values.flag:  # --control is --control=true
            more = {"is_flag": False, "flag_value": "true"}
        if words := value_type.words:
            choice = f"[{'|'.join(words)}]"
            if len(choice) <= _MAX_METAVAR:  # the help explains each word of a longer one
                more["metavar"] = choice
        super().__init__(
            [_option(wire_name(setting.name))],
            type=value_type,
            multiple=value_type.multiple,
            help=setting.metadata["help"] + (f"  [default: {default}]" if default else ""),
            expose_value=False,
            **more,
        )

    def type_cast_value(self, ctx: click.Context, value: Any) -> None:
        """Hand the value to GivenSettings. The values of a repeated option are joined with commas."""
        name = str(self.name)
        given = ctx.ensure_object(GivenSettings)
        source = ctx.get_parameter_source(name)
        if source is ParameterSource.DEFAULT_MAP:
            given.take(name, *value)
        elif value is not None:
            text = ",".join(value) if self.multiple else value
            if source is ParameterSource.COMMANDLINE:
                given.set(name, text)
            else:
                given.take(name, _variable(wire_name(name)), text)


def _read_environment(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    """Refuse unknown variables and read the file. Click looks for the values afterwards."""
    if ctx.auto_envvar_prefix:
        known = [*_SETTINGS, CONFIG, *_CLIENT_VARIABLES]
        for variable in sorted(os.environ):
            if not variable.startswith(PREFIX) or variable.startswith(f"{PREFIX}TEST_"):
                continue
            name = wire_name(variable.removeprefix(PREFIX).lower())
            if name not in known or variable != _variable(name):  # click reads no other spelling
                _refuse(name, variable, known, _variable)
            if name in _SETTINGS and not os.environ[variable]:  # click would take the default
                raise SettingsError(f"{variable} is empty: expected a value. To use the default, unset it")
    if path:
        if ctx.get_parameter_source(CONFIG) is ParameterSource.COMMANDLINE:
            ctx.ensure_object(GivenSettings).texts[CONFIG] = str(path)
        ctx.default_map = _read_file(path)


def _read_file(path: Path) -> dict[str, tuple[str, Any]]:
    """The place and the value of each setting in the file, by the names of the fields."""
    try:
        text = path.read_text()
        keys = tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"the settings file {path} is not TOML: line {line} is not UTF-8") from None
    except ValueError as error:
        last = f"at line {len(text.splitlines())}, the last one"
        why = str(error).replace("at end of document", last)  # its other messages name the line
        raise SettingsError(f"the settings file {path} is not TOML: {why}") from None

    def place(name: str) -> str:
        key = rf"""[ \t]*(["']?){re.escape(name)}\1[ \t]*"""
        found = re.search(rf"^[ \t]*\[+{key}[].]", text, re.MULTILINE)
        # the keys of a table may be named as a table further down
        found = found or re.search(rf"^{key}[.=]", text, re.MULTILINE)
        line = f", line {text.count(chr(10), 0, found.start()) + 1}" if found else ""
        return f"{name} in {path}{line}"

    for name in sorted(set(keys) - set(_SETTINGS)):
        _refuse(name, place(name), [*_SETTINGS], str)
    return {name.replace("-", "_"): (place(name), value) for name, value in keys.items()}


def refuse_removed(name: str, shown: str) -> None:
    """If there once was such a setting, raises SettingsError, which says what to do instead."""
    if name in REMOVED:
        raise SettingsError(f"{shown} was removed: {REMOVED[name]}")


def _refuse(name: str, shown: str, known: Sequence[str], spelled: Callable[[str], str]) -> NoReturn:
    refuse_removed(name, shown)
    near = difflib.get_close_matches(name, known, 1, 0)
    raise SettingsError(f"there is no setting {shown}; the nearest is {spelled(near[0])}")


def _option(name: str) -> str:
    return f"--{name}"


def _variable(name: str) -> str:
    return PREFIX + name.replace("-", "_").upper()


OPTIONS: Sequence[click.Option] = (
    click.Option(
        [_option(CONFIG)],
        metavar="FILE",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read_environment,
        help="A TOML file with settings.",
    ),
    *map(_SettingOption, DECLARED),
)


def load(words: Sequence[str] = ()) -> GivenSettings:
    """The settings of a command with these words. Raises SettingsError if one is wrong."""
    command = click.Command("settings", params=list(OPTIONS), context_settings=READS_VARIABLES)
    return command.make_context("settings", list(words)).ensure_object(GivenSettings)
