"""Endpoints about tasks. Source: docs/explanation/http-contract.md."""

from functools import partial

from legacy_queue.domain.definition import NO_PROJECT, pool_in
from legacy_queue.domain.errors import InputError
from legacy_queue.domain.formats_of_2018 import MAX_DEPENDENCIES, MAX_DEPENDENCIES_2018
from legacy_queue.domain.ids import TASK_ID
from legacy_queue.domain.priority import at_least
from legacy_queue.domain.scopes import AllOf, AnyOf, Expression, ForEach
from legacy_queue.domain.task import Task
from legacy_queue.http.endpoint import Call, Reply, endpoint
from legacy_queue.http.endpoints.groups import group_wire
from legacy_queue.http.paging import PAGED, page_answer
from legacy_queue.services.tasks.tasks import Tasks

_POOL = "<provisionerId>/<workerType>"
_GROUP = "<schedulerId>/<taskGroupId>"

_CREATE = f"queue:create-task:{_POOL}"
_DEFINE = f"queue:define-task:{_POOL}"
_SCHEDULE = (f"queue:task-group-id:{_GROUP}", f"queue:schedule-task:{_GROUP}/<taskId>")

_listing = partial(endpoint, "GET", query=PAGED)
_changing = partial(endpoint, output="task-status-response")
_creating = partial(_changing, input="create-task-request")


def _to_create(*legacy: Expression) -> AllOf:
    """The scopes that create a task. ``legacy`` are alternatives for tasks of the lowest priority only."""
    modern = AllOf(("queue:scheduler-id:<schedulerId>", f"queue:create-task:<priority>:{_POOL}"))
    any_priority = ForEach("priority", "priorities", modern)
    alternatives = (any_priority, *(ForEach("legacy", "legacyPriority", scopes) for scopes in legacy))
    each_scope = ForEach("scope", "scopes", "<scope>")
    each_route = ForEach("route", "routes", "queue:route:<route>")
    project = ForEach("projectId", "projects", "queue:create-task:project:<projectId>")
    return AllOf((each_scope, each_route, project, AnyOf(alternatives)))


def _on_task(verb: str) -> AnyOf:
    legacy = AllOf((f"queue:{verb}", f"assume:scheduler-id:{_GROUP}"))
    return AnyOf((f"queue:{verb}:{_GROUP}/<taskId>", f"queue:{verb}-in-project:<projectId>", legacy))


@endpoint("GET", "/task/<taskId>", "Get Task Definition", scopes="queue:get-task:<taskId>", output="task")
def task(call: Call) -> Reply:
    """Get the definition of the task, with all defaults filled in."""
    return call.authorize().services.tasks.load(call.task_id).wire


@endpoint(
    "GET",
    "/task/<taskId>/status",
    "Get Task Status",
    scopes="queue:status:<taskId>",
    output="task-status-response",
)
def status(call: Call) -> Reply:
    """Get the status of the task: its state and its runs."""
    return _status(call.authorize().services.tasks.load(call.task_id))


@_creating(
    "PUT", "/task/<taskId>", "Create New Task", scopes=_to_create(_CREATE, AllOf((_DEFINE, *_SCHEDULE)))
)
def create_task(call: Call) -> Reply:
    """Create a task. It is pending at once, unless it has dependencies. You can repeat the call safely."""
    return _status(_as_creator(call).create(call.task_id, call.body))


@_creating(
    "POST",
    "/task/<taskId>/define",
    "Define Task",
    scopes=_to_create(_CREATE, _DEFINE),
    stability="deprecated",
)
def define_task(call: Call) -> Reply:
    """Create a task that depends on itself, so that only scheduleTask makes it pending.

    You can repeat the call safely.
    """
    return _status(_as_creator(call, call.task_id).define(call.task_id, call.body))


@_changing("POST", "/task/<taskId>/schedule", "Schedule Defined Task", scopes=_on_task("schedule-task"))
def schedule_task(call: Call) -> Reply:
    """Make an unscheduled task pending, whatever it depends on. A task in any other state stays as it is."""
    return _status(_as_scheduler(call).schedule(call.task_id))


@_changing(
    "POST",
    "/task/<taskId>/rerun",
    "Rerun a Resolved Task",
    scopes=_on_task("rerun-task"),
    stability="deprecated",
)
def rerun_task(call: Call) -> Reply:
    """Give a resolved or unscheduled task a new run and all its retries.

    A pending or running task stays as it is.
    """
    return _status(_as_scheduler(call).rerun(call.task_id))


@_changing("POST", "/task/<taskId>/cancel", "Cancel Task", scopes=_on_task("cancel-task"))
def cancel_task(call: Call) -> Reply:
    """Resolve an unresolved task as exception, with the reason canceled. A resolved task stays as it is."""
    return _status(_as_scheduler(call).cancel(call.task_id))


@_listing(
    "/task-group/<taskGroupId>/list",
    "List Task Group",
    scopes="queue:list-task-group:<taskGroupId>",
    output="list-task-group-response",
)
def list_task_group(call: Call) -> Reply:
    """List the tasks of a group, in pages of at most ``limit`` tasks.

    If the page has a continuationToken, there are more tasks: repeat the call with the token as a query
    parameter. A page has at most about 4 MiB of JSON, so it may have fewer tasks than ``limit`` and still not
    be the last. If a task joins the group between two pages, no other task is listed twice or left out. Each
    page also has what getTaskGroup returns.
    """
    services = call.authorize().services
    task_group_id = call.params["taskGroupId"]
    group = services.groups.find(task_group_id)
    header = group_wire(group) if group else call.params
    ask = partial(services.listing.group, task_group_id)
    return page_answer(call, "tasks", TASK_ID, ask, _listed, header)


@_listing(
    "/task/<taskId>/dependents",
    "List Dependent Tasks",
    scopes="queue:list-dependent-tasks:<taskId>",
    output="list-dependent-tasks-response",
)
def list_dependent_tasks(call: Call) -> Reply:
    """List the tasks that depend on a task, in pages like listTaskGroup."""
    ask = partial(call.authorize().services.listing.dependents, call.task_id)
    return page_answer(call, "tasks", TASK_ID, ask, _listed, call.params)


def _as_creator(call: Call, *more_dependencies: str) -> Tasks:
    body = call.body
    provisioner_id, worker_type = pool_in(call.body)
    dependencies = {*body.get("dependencies", ()), *more_dependencies}
    most = MAX_DEPENDENCIES if call.is_todays else MAX_DEPENDENCIES_2018
    if len(dependencies) > most:
        itself = ", including the task itself" if more_dependencies else ""
        raise InputError(f"the task has {len(dependencies)} dependencies{itself}: expected at most {most}")
    project_id = body.get("projectId", NO_PROJECT)
    priority = "lowest" if body.get("priority") in (None, "normal") else body["priority"]
    return call.authorize(
        scopes=body.get("scopes", []),
        routes=body.get("routes", []),
        priorities=at_least(priority),
        legacyPriority=[priority] if priority == "lowest" else [],
        schedulerId=body.get("schedulerId", "-"),
        taskGroupId=body.get("taskGroupId", call.task_id),
        provisionerId=provisioner_id,
        workerType=worker_type,
        # older clients know no projects, and have no scope for the project "none"
        projects=[] if project_id == NO_PROJECT else [project_id],
    ).services.tasks


def _as_scheduler(call: Call) -> Tasks:
    definition = call.task().definition
    return call.authorize(
        schedulerId=definition.scheduler_id,
        taskGroupId=definition.task_group_id,
        projectId=definition.project_id,
    ).services.tasks


def _status(task: Task) -> Reply:
    return {"status": task.status()}


def _listed(task: Task) -> Reply:
    return {"status": task.status(), "task": task.wire}
