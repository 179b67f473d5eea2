"""The settings as options of a command, and --stop-with-stdin."""

import _thread
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from legacy_queue.config.removed import REMOVED
from legacy_queue.config.settings import CONFIG, DECLARED, Settings, SettingsError, load, wire_name
from legacy_queue.server.signals import stop_with_stdin

GENERATED = ("clients", "signing_secrets")  # for development, if none are configured


SECTIONS: Mapping[str, Sequence[str]] = {
    title: names.split()
    for title, names in {
        "Storage": """storage data_dir synchronous connection_string azure_queue_url azure_table_url
            azure_blob_url azure_account azure_proxy azurite_dir azurite_default_account queue_prefix""",
        "Network": """host port workers public_url public_queue_url public_blob_url tls tls_name tls_cert
            tls_key allowed_hosts cors_origins trusted_proxy""",
        "Clients": "clients roles anonymous_scopes signing_secrets",
        "Protocol": """claim_timeout poll_visibility sas_life claim_work_wait worker_types answer_shape
            legacy_stubs""",
        "Events": "amqp_url project event_shape",
        "Tests": "control development",
        "Logs and metrics": "log_format log_level metrics_pools",
    }.items()
}
_ALL = "--help-all"


class SettingsCommand(click.Command):
    """A command whose --help is a page: the options that it ``uses`` most. --help-all has all in sections."""

    def __init__(self, *args: Any, uses: Sequence[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._uses = (*uses, "config", "help_all")
        help_all = click.Option([_ALL], is_flag=True, is_eager=True, expose_value=False, callback=_show_all)
        help_all.help = f"Show all options, {len(DECLARED)} of them settings, and exit."
        self.params.append(help_all)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first paragraph, or all."""
        text = inspect.cleandoc(self.help or "")
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text if _ALL in ctx.meta else text.partition("\n\n")[0])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that are used most, or all in sections."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        records = {str(option.name): option.get_help_record(ctx) for option in options}
        sections: dict[str, Sequence[str]] = {"Options": self._uses}
        if _ALL in ctx.meta:
            settings = {name for names in SECTIONS.values() for name in names}
            sections = {"Options": [name for name in records if name not in settings]}
            sections.update(SECTIONS)
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl([record for name in names if (record := records[name])])


def _show_all(ctx: click.Context, _param: click.Parameter, is_given: bool) -> None:
    if is_given:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each setting, and ``--config``."""
    for setting in reversed(DECLARED):
        name = wire_name(setting.name)
        # click's option has no default: a variable or the file may set the value
        default = "made up for development" if setting.name in GENERATED else setting.metadata["default"]
        shown = f"{setting.metadata['help']}  [default: {default}]"
        more: dict[str, Any] = {"multiple": setting.metadata["multiple"]}
        if setting.type is bool:
            # --control is --control=true
            more = {"is_flag": False, "flag_value": "true", "metavar": "true|false"}
        if words := setting.metadata["words"]:
            more["type"] = click.Choice(words)
        else:
            more.setdefault("metavar", "VALUE")
        command = click.option(f"--{name}", help=shown, callback=_joined, **more)(command)
    for name in REMOVED:  # so that the error says what replaces it, not that there is no such option
        command = click.option(f"--{name}", hidden=True, is_flag=False, flag_value="true")(command)
    return click.option(f"--{CONFIG}", metavar="FILE", help="A TOML file of settings.  [default: none]")(
        command
    )


def _joined(_ctx: click.Context, _param: click.Parameter, value: Any) -> str | None:
    """The values of a repeated option, joined with commas."""
    return (",".join(value) if value else None) if isinstance(value, tuple) else value


def settings_of(options: Mapping[str, str | None]) -> tuple[Settings, Mapping[str, str]]:
    """The result of ``config.load``."""
    return load(options, os.environ)


def with_control(options: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, str | None]:
    """The options and --control, unless control is set already or another setting excludes it.

    Raises SettingsError for wrong settings.
    """
    _, sources = load(options, environ)
    if sources["control"] == "default":
        with suppress(SettingsError):
            load({**options, "control": "true"}, environ)
            return {**options, "control": "true"}
    return dict(options)


def watch_stdin() -> None:
    """Do what --stop-with-stdin says. Under gevent, after it has patched."""
    if sys.stdin is None:
        raise click.UsageError("--stop-with-stdin needs a standard input, and it is closed")
    # a Thread that gevent has patched would not survive a fork
    _thread.start_new_thread(stop_with_stdin, ())


stop_with_stdin_option = click.option(
    "--stop-with-stdin",
    is_flag=True,
    help="End as by SIGTERM when standard input ends, as when the process that holds its pipe has ended.",
)
