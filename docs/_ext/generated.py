"""Replaces ``<!-- generated: NAME -->`` in a page by text that is generated from the declarations.

Words after the name are arguments: ``<!-- generated: endpoints artifacts -->``.
"""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from inspect import cleandoc
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import schema_tables
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from sphinx.application import Sphinx

from legacy_queue.cli.commands import commands
from legacy_queue.cli.queue_options import QUEUE_PARAMETERS
from legacy_queue.config.given_settings import CONFIG, PREFIX
from legacy_queue.config.settings import DECLARED, wire_name
from legacy_queue.conform.rules import RULES
from legacy_queue.conform.situations import SITUATIONS
from legacy_queue.domain import errors as domain_errors
from legacy_queue.domain.errors import InjectedError, QueueError
from legacy_queue.domain.scopes import AllOf, AnyOf, Expression, ForEach
from legacy_queue.domain.topics import PROJECT
from legacy_queue.http.declared_endpoints import served_by
from legacy_queue.http.endpoint import Endpoint
from legacy_queue.http.parameters import PARAMETERS, in_words
from legacy_queue.http.references import exchanges_reference
from legacy_queue.http.schemas import SCHEMAS, message_schema
from legacy_queue.services.inspection.explanation import WAIT_SITUATIONS
from legacy_queue.testing import LegacyQueue

CLIENTS: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("clients.json").read_text())
_STUBBED = ("purge-cache", "auth")  # services of which a few calls are answered
_SERVICES = ("queue", "object", "inspect", "control", *_STUBBED)  # all but the web page
SERVED = {endpoint.name: endpoint for endpoint in served_by("queue", "object")}
# the page of docs/reference/http-api that describes the endpoints of a module, or of a service
_PAGE_OF_MODULE = {
    "tasks": "tasks",
    "groups": "tasks",
    "runs": "claims",
    "artifacts": "artifacts",
    "task_queues": "pools",
    "workers": "workers",
    **dict.fromkeys(("liveness", "migration", "event_stream"), "server"),
}
_PAGE_OF_SERVICE = {
    "object": "object-service",
    "inspect": "inspect",
    "control": "control",
    **dict.fromkeys(_STUBBED, "other-services"),
}
_GROUPS = "task-groups"

_HTTP_API = Path(__file__).parents[1] / "reference" / "http-api"
_AZURE_CASES = Path(__file__).parents[2] / "tests" / "gateway" / "azure_cases.toml"
_AZURE_PAGES = "https://learn.microsoft.com/rest/api/storageservices/"
_OTHER_REQUESTS = "Other requests"
_OPERATIONS = {  # of Azure, by kind of resource, method and comp
    ("queue", "GET", ""): "Get Messages",
    ("queue", "DELETE", ""): "Delete Message",
    ("blob", "PUT", ""): "Put Blob",
    ("blob", "PUT", "block"): "Put Block",
    ("blob", "PUT", "blocklist"): "Put Block List",
    ("blob", "PUT", "metadata"): "Set Blob Metadata",
    ("blob", "PUT", "properties"): "Set Blob Properties",
    ("blob", "GET", ""): "Get Blob",
    ("blob", "HEAD", ""): "Get Blob Properties",
    ("blob", "GET", "metadata"): "Get Blob Metadata",
    ("blob", "HEAD", "metadata"): "Get Blob Metadata",
}
_MAX_SHOWN = 240  # characters of a line
_NAMING = {"taskId", "taskGroupId", "provisionerId", "taskQueueId", "objectName"}  # of what may not exist

# run in a process of its own, since the module of serve changes the process that imports it
_HELP = """
import click, json
from legacy_queue.cli.commands import commands

def description(command, context):
    info = command.to_info_dict(context)
    if isinstance(command, click.Group):
        inner = {name: command.get_command(context, name) for name in command.list_commands(context)}
        info["commands"] = {
            name: description(each, click.Context(each, context, name)) for name, each in inner.items()
        }
    return {**info, "usage": " ".join([context.command_path, *command.collect_usage_pieces(context)])}

print(json.dumps(description(commands, click.Context(commands, info_name="legacy-queue")), default=str))
"""


def endpoints(page: str = "") -> str:
    """A table of the page's endpoints, and a section for each; of all endpoints without a page."""
    shown = [endpoint for endpoint in served_by(*_SERVICES) if page in ("", _page_of(endpoint))]
    rows = [[f"[{each.name}](#{each.name.lower()})", f"`{each.method} {each.route}`"] for each in shown]
    return "\n".join([_table(["method", "request"], rows), *map(_endpoint, shown)])


def index() -> str:
    """A row for each method, by its name, with a link to its section, and the clients that have it.

    It keeps the anchors from the time when all methods were on one page, for links from elsewhere.
    """
    rows = []
    for name, endpoint in sorted(SERVED.items(), key=lambda item: item[0].lower()):
        link = f"[{name}](http-api/{_page_of(endpoint)}.md#{name.lower()})"
        request = f"`{endpoint.method} {endpoint.route}`"
        rows.append([f'<a id="{name.lower()}"></a>{link}', request, _clients_with(name)])
    return _table(["method", "request", "clients"], rows)


def groups() -> str:
    """A row for each page of methods, with the first sentence of the page."""
    rows = []
    for page in dict.fromkeys(("tasks", _GROUPS, *_PAGE_OF_MODULE.values(), *_PAGE_OF_SERVICE.values())):
        text = (_HTTP_API / f"{page}.md").read_text()
        title, sentence = text.removeprefix("# HTTP API: ").partition(".")[0].split("\n\n")
        rows.append([f"[{title.capitalize()}](http-api/{page}.md)", f"{sentence}.".replace("\n", " ")])
    return _table(["page", "what for"], rows)


def _clients_with(method: str) -> str:
    return ", ".join(version for version, methods in CLIENTS.items() if method in methods)


def _page_of(endpoint: Endpoint) -> str:
    if endpoint.service in _PAGE_OF_SERVICE:
        return _PAGE_OF_SERVICE[endpoint.service]
    if endpoint.route.startswith("/task-group/"):
        return _GROUPS
    return _PAGE_OF_MODULE[endpoint.handler.__module__.rpartition(".")[2]]


def _endpoint(endpoint: Endpoint) -> str:
    lines = [
        f"## {endpoint.name}",
        "",
        _routes(endpoint),
        "",
        re.sub(r"(?<!`)\b[a-z]+[A-Z]\w*\b", _linked, endpoint.description.replace("``", "`")),
    ]
    lines += ["", f"- Scopes: {_scopes(endpoint.scopes)}"]
    lines += (
        [f"- Parameters: {_parameters((*endpoint.args, *endpoint.query), endpoint.query)}"]
        if endpoint.args or endpoint.query
        else []
    )
    lines += [f"- Errors: {_errors(endpoint)}"]
    lines += [f"- Stability: {endpoint.stability}", f"- Clients: {_used_by(endpoint)}"]
    for kind, name in (("Request body", endpoint.input), ("Answer", endpoint.output)):
        if name:
            optional = ", may be left out" if name == endpoint.input and endpoint.input_optional else ""
            lines += ["", f"{kind} (schema `{name}`{optional}):", "", schema_tables.table(name)]
            if f"{name}-of-today" in SCHEMAS:
                lines += [f"Under `/api/queue/v1` the schema is `{name}-of-today`."]
    return "\n".join([*lines, ""])


def _linked(word: re.Match[str]) -> str:
    """A link, if the word is the name of a method."""
    name = word[0]
    return (
        f"[{name}](/reference/http-api/{_page_of(SERVED[name])}.md#{name.lower()})"
        if name in SERVED
        else name
    )


def _routes(endpoint: Endpoint) -> str:
    """The routes, with the prefix for a rootUrl if they are served under one."""
    prefix = f"/api/{endpoint.service}/v1" if endpoint.has_prefix else ""
    return " or ".join(
        f"`{endpoint.method} {prefix}{route}`"
        for route in (endpoint.route, endpoint.task_queue_route)
        if route
    )


def _used_by(endpoint: Endpoint) -> str:
    if endpoint.service in ("control", "inspect"):
        return "no published client"
    if endpoint.service != "queue":
        return f"the clients of the service `{endpoint.service}`"
    versions = _clients_with(endpoint.name)
    return f"`taskcluster` {versions}" if versions else "no published client"


def _parameters(names: Sequence[str], query: Sequence[str]) -> str:
    return ", ".join(
        f"[`{name}`](../http-api.md#parameters){' in the query' if name in query else ''}" for name in names
    )


def parameters() -> str:
    """What each parameter must match."""
    rows = []
    for name, pattern in PARAMETERS.items():
        words = in_words(pattern).replace("<", "&lt;")
        rows.append([f"`{name}`", "" if pattern in words else words, f"`{pattern}`"])
    return _table(["parameter", "expected", "pattern"], rows)


def _scopes(expression: "Expression | None", indent: str = "") -> str:
    """In one line, or as a nested list if an alternative needs several scopes."""
    match expression:
        case None:
            return "none"
        case AllOf(()):
            return "any valid credentials"
        case str():
            return f"`{expression}`"
        case ForEach():
            return _scopes_for(expression, "each", indent)
    is_any = isinstance(expression, AnyOf)
    count = "one" if is_any else "each"
    parts = [
        _scopes_for(part, count, f"{indent}  ") if isinstance(part, ForEach) else _scopes(part, f"{indent}  ")
        for part in expression.parts
    ]
    if len(parts) == 1:
        return parts[0]
    if not any(isinstance(part, ForEach) or len(getattr(part, "parts", ())) > 1 for part in expression.parts):
        return (" or " if is_any else " and ").join(parts)
    return f"{'one' if is_any else 'all'} of these:" + "".join(f"\n{indent}  - {part}" for part in parts)


def _scopes_for(loop: ForEach, count: str, indent: str) -> str:
    each = _scopes(loop.each, indent)
    if loop.in_ in _AT_MOST_ONE:
        return f"{each}, {_AT_MOST_ONE[loop.in_]}"
    return f"{each} for {count} `{loop.variable}` of {_LISTS[loop.in_]}"


_LISTS = {  # what the values of a loop in the scopes are
    "scopes": "the task's scopes",
    "routes": "the task's routes",
    "priorities": "the task's priority and all higher ones",
    "taskIds": "the taskIds in the body",
    "taskQueueIds": "the taskQueueIds in the body",
    "names": "the artifact and all links to it that are followed",
    "properties": "the properties in the body",
}
_AT_MOST_ONE = {  # lists that have one value, or none if the sentence does not hold
    "legacyPriority": "if the task has the lowest priority",
    "projects": "if the task has a projectId other than `none`",
    "directions": "with `raise` or `lower`, as the change is",
    "schedulers": "with the group's schedulerId",
}


def _errors(endpoint: Endpoint) -> str:
    """The errors that follow from the declaration. The description names those of the task's state."""
    statuses = ["400"] if endpoint.args or endpoint.query or endpoint.input else []
    statuses += ["401", "403"] if endpoint.scopes is not None else []
    statuses += ["404"] if _NAMING & set(endpoint.args) else []
    statuses += ["409"] if endpoint.method != "GET" and endpoint.args else []
    statuses += ["413"] if endpoint.input else []
    return ", ".join([*statuses, "503"]) if statuses or "503" in endpoint.description else "none"


def settings() -> str:
    """A row for each setting, in sections."""
    shown = dict(
        line.split(" = ", 1)
        for line in CliRunner().invoke(commands, ["config"]).output.splitlines()
        if not line.startswith("#")
    )
    tables: dict[str, list[list[str]]] = {}
    for setting in DECLARED:
        name = wire_name(setting.name)
        default = shown[name].partition("  # ")[0].strip('"')
        default = "" if default in ("(none)", "{}", "[]") or setting.metadata["secret"] else f"`{default}`"
        secret = " *Secret: better in the file or the environment.*" if setting.metadata["secret"] else ""
        row = [f"`{name}`", default, escape(setting.metadata["help"], quote=False) + secret]
        tables.setdefault(setting.metadata["section"], []).append(row)
    groups = [
        f"### {title}\n\n{_table(['setting', 'default', 'meaning'], rows)}" for title, rows in tables.items()
    ]
    return "\n".join(groups) + f"\nVariables begin with `{PREFIX}`.\n"


def command_line() -> str:
    """A section for each command."""
    return "\n".join(_commands(_described_commands(), ()))


def queue_options() -> str:
    """A row for each option that chooses the queue of a command."""
    rows = [
        _option(option)
        for option in _described_commands()["commands"]["status"]["params"]
        if option["name"] in QUEUE_PARAMETERS
    ]
    return _table(["option", "default", "meaning"], rows)


def _described_commands() -> Any:
    printed = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True, check=True).stdout
    return json.loads(printed)


def _commands(info: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    for name, command in info["commands"].items():
        words = (*above, name)
        if "commands" in command:
            yield from _head(words, command)
            yield from _commands(command, words)
            continue
        # hidden ones were removed
        options = [
            each for each in command["params"] if each["param_type_name"] == "option" and not each["hidden"]
        ]
        takes_settings = any(option["name"] == CONFIG for option in options)
        calls_a_queue = any(option["name"] == "client_id" for option in options)
        left_out = _SETTINGS if takes_settings else {*QUEUE_PARAMETERS} if calls_a_queue else set()
        rows = [
            _option(option)
            for option in options
            if "--help" not in option["opts"] and option["name"] not in left_out
        ]
        yield from _head(words, command)
        if takes_settings:
            yield "It takes every [setting](settings.md) as an option.\n"
        if calls_a_queue:
            yield "It takes the [options that choose a queue](#how-a-command-finds-the-queue).\n"
        if rows:
            yield _table(["option", "default", "meaning"], rows)


def _head(words: Sequence[str], command: Mapping[str, Any]) -> Iterator[str]:
    yield f"## legacy-queue {' '.join(words)}\n\n`{command['usage']}`\n"
    yield cleandoc(command["help"] or "").replace("``", "`").replace("\b\n", "") + "\n"


def _option(option: Mapping[str, Any]) -> list[str]:
    names = ", ".join(f"`{name}`" for name in (*option["opts"], *option["secondary_opts"]))
    default = option["default"]
    is_shown = default not in (None, False, [], ()) and "Sentinel" not in str(default)
    variables = [option["envvar"]] if isinstance(option["envvar"], str) else option["envvar"] or []
    text = [escape(option["help"] or "", quote=False)]
    text += [f"Variable: {' or '.join(f'`{variable}`' for variable in variables)}." if variables else ""]
    text += ["Required." if option["required"] else ""]
    return [names, f"`{default}`" if is_shown else "", " ".join(filter(None, text))]


_SETTINGS = {setting.name for setting in DECLARED} | {CONFIG}


def events() -> str:
    """A section for each exchange."""
    sections = []
    for entry in exchanges_reference(PROJECT)["entries"]:
        names = [word["name"] for word in entry["routingKey"]]
        words = ".".join(f"<{name}>" for name in names)
        routing_key = "the words [above](#routing-keys)" if "taskId" in names else f"`{words}`"
        schema = message_schema(entry["exchange"])
        sections += [
            f"### {entry['exchange']}\n\n{entry['description']}\n\nRouting key: {routing_key}\n",
            f"Message, schema `{schema}`:\n\n{schema_tables.table(schema)}",
        ]
    return "\n".join(sections)


def routing_key() -> str:
    """The words of a routing key."""
    [entry] = [entry for entry in exchanges_reference(PROJECT)["entries"] if entry["name"] == "taskPending"]
    return _table(
        ["word", "meaning"], [[f"`{word['name']}`", word["summary"]] for word in entry["routingKey"]]
    )


def rules() -> str:
    """A row for each rule of conform."""
    rows = [
        [
            f"`{rule.id}`<br>{rule.demand}, for {', '.join(rule.protocols)}",
            f"{_escaped(rule.sentence)} *{rule.source}*",
        ]
        for rule in RULES
    ]
    return _table(["rule", "the sentence in the document"], rows)


def _escaped(text: str) -> str:
    """For Markdown, which shows code between backticks as it is."""
    return "`".join(each if at % 2 else escape(each) for at, each in enumerate(text.split("`")))


def situations() -> str:
    """A row for each situation of conform."""
    return _table(["situation", "what happens"], [[f"`{each.name}`", each.sentence] for each in SITUATIONS])


def errors() -> str:
    """A row for each code, with the first paragraph of the docstring of its class."""
    classes = [
        each
        for each in vars(domain_errors).values()
        if isinstance(each, type) and issubclass(each, QueueError)
    ]
    rows = [
        [str(each.status), f"`{each.__name__}`", cleandoc(each.__doc__ or "").partition("\n\n")[0]]
        for each in classes
        if each not in (QueueError, InjectedError)
    ]
    return _table(["status", "code", "meaning"], rows)


def waits() -> str:
    """A row for each situation of a task that waits."""
    rows = [[f"`{situation}`", says, until] for situation, (says, until) in WAIT_SITUATIONS.items()]
    return _table(["`situation`", "what it says about the task", "`until`"], rows)


def metrics() -> str:
    """A row for each metric that a server shows."""
    with LegacyQueue() as queue, urlopen(f"{queue.root_url}/metrics") as answer:  # noqa: S310
        families = text_string_to_metric_families(answer.read().decode())
        rows = [
            [f"`{each.name}{_SUFFIXES.get(each.type, '')}`", each.type, escape(each.documentation)]
            for each in families
        ]
    return _table(["metric", "type", "meaning"], rows)


def azure() -> str:
    """What the placeholders stand for, and a table of cases for each operation of Azure."""
    content = tomllib.loads(_AZURE_CASES.read_text())
    tables: dict[str, list[list[str]]] = {name: [] for name in (*_OPERATIONS.values(), _OTHER_REQUESTS)}
    for case in content["case"]:
        tables[_operation(case["request"])].append(_azure_row(case))
    heads = ["case", "request", "answer", "Azurite"]
    placeholders = [[f"`{{{name}}}`", meaning] for name, meaning in content["placeholders"].items()]
    sections = [f"## {name}\n\n{_table(heads, rows)}" for name, rows in tables.items() if rows]
    count = (
        f"These are {len(content['case'])} requests. Each name links to the page of Azure that has the "
        "answer. If none does, the source stands below the name; *chosen here* means that no page of "
        "Azure says it. Each answer also has `x-ms-version`, `x-ms-request-id` and `Date`. The message of an "
        "error also has the time and the request id. If the column *Azurite* is empty, Azurite answers the "
        "same.\n"
    )
    return "\n".join([count, _table(["placeholder", "stands for"], placeholders), *sections])


def _operation(request: str) -> str:
    method, _, url = request.partition(" ")
    comp = re.search(r"comp=(\w+)", url)
    is_blob = re.match("{(blob|upload|download)}", url) is not None
    is_of_messages = re.match("{(poll|gone|queue}/messages)", url) and "peekonly=true" not in url
    kind = "blob" if is_blob else "queue" if is_of_messages else ""
    return _OPERATIONS.get((kind, method, comp[1] if comp else ""), _OTHER_REQUESTS)


def _azure_row(case: Mapping[str, Any]) -> list[str]:
    changed = ", ".join(f"{name} {value}" for name, value in case.get("sas", {}).items())
    asked = [f"after {_azure_request(each)}" for each in case.get("before", [])]
    asked += [_azure_request(case), *([f"SAS: {changed}"] if changed else [])]
    of_azurite = {"status": case["status"], **case["azurite"]} if "azurite" in case else {}
    source = case["source"]
    is_page = re.fullmatch("[a-z0-9-]+", source)
    return [
        f"[{case['name']}]({_AZURE_PAGES}{source})" if is_page else f"{case['name']}<br>*{escape(source)}*",
        "<br>".join(asked),
        _azure_answer(case),
        _azure_answer(of_azurite) if of_azurite else "",
    ]


def _azure_request(case: Mapping[str, Any]) -> str:
    lines = [case["request"], *(f"{name}: {text}" for name, text in case.get("headers", {}).items())]
    body = case.get("body", "") * case.get("times", 1)
    return "<br>".join(map(_shown, [*lines, body] if body else lines))


def _azure_answer(answer: Mapping[str, Any]) -> str:
    """The status, the code, and what else the case names."""
    lines = [f"{answer['status']} {answer.get('code', '')}".strip()]
    for name, value in answer.get("answer_headers", {}).items():
        shown = "..." if value is True else value
        lines.append(_shown(f"{name}: {shown}") if value else f"no {name}")
    if "answer_body" in answer:
        lines.append(_shown(answer["answer_body"]) if answer["answer_body"] else "another body")
    return "<br>".join(lines)


def _shown(text: str) -> str:
    """As code in a table, which has no line breaks."""
    line = text.replace("\n", " ")
    cut = "" if len(line) <= _MAX_SHOWN else f" and so on, {len(text):,} characters"
    return f"`` {line[:_MAX_SHOWN]} ``{cut}"


_SUFFIXES = {"counter": "_total"}  # which the parser takes off


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    lines = [heads, ["---"] * len(heads), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


_GENERATORS: Mapping[str, Callable[..., str]] = {
    "index": index,
    "groups": groups,
    "endpoints": endpoints,
    "shapes": schema_tables.shapes,
    "parameters": parameters,
    "settings": settings,
    "commands": command_line,
    "queue-options": queue_options,
    "events": events,
    "routing-key": routing_key,
    "rules": rules,
    "situations": situations,
    "errors": errors,
    "waits": waits,
    "metrics": metrics,
    "azure": azure,
}


def _fill_in(_app: Sphinx, _page: str, source: list[str]) -> None:
    source[0] = re.sub("<!-- generated: (.*?) -->", _generated, source[0])


def _generated(mark: re.Match[str]) -> str:
    name, *words = mark[1].split()
    return _GENERATORS[name](*words)


def setup(app: Sphinx) -> Mapping[str, Any]:
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True}
