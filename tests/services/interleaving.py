"""Runs concurrent actions with their port calls in every order, without threads."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from greenlet import getcurrent, greenlet


def pausing(_name: str, call: Callable[[], Any]) -> Any:
    """Intercept a port call: ``run`` decides when it happens."""
    parent = getcurrent().parent
    if parent:
        parent.switch()
    return call()


def run(actions: Sequence[Callable[[], Any]], choose: Callable[[int], int]) -> list[Any]:
    """What each action returns or raises. ``choose`` gets how many can continue, and returns which does."""
    results: list[Any] = [None] * len(actions)

    def act(index: int) -> None:
        try:
            results[index] = actions[index]()
        except BaseException as error:  # noqa: BLE001 - the result of the action, a crash too
            results[index] = error

    waiting = []
    for index in range(len(actions)):
        task = greenlet(act)
        task.switch(index)  # up to its first port call, which changes nothing
        waiting.append(task)
    while waiting := [task for task in waiting if not task.dead]:
        waiting[choose(len(waiting))].switch()
    return results


def every_order(scene: Callable[[Callable[[int], int]], None]) -> int:
    """Play the scene once for each order; returns how many there are.

    The scene builds everything anew, and gives its argument ``choose`` to ``run``.
    """
    played = 0
    for script in _scripts(scene):
        played += 1
        assert played < 5000, script
    return played


def _scripts(scene: Callable[[Callable[[int], int]], None]) -> Iterator[list[int]]:
    script: list[int] = []
    while True:
        options: list[int] = []

        def choose(count: int, script: list[int] = script, options: list[int] = options) -> int:
            if len(options) == len(script):
                script.append(0)
            options.append(count)
            return script[len(options) - 1]

        scene(choose)
        yield script
        while script and script[-1] + 1 == options[len(script) - 1]:
            script = script[:-1]
        if not script:
            return
        script = [*script[:-1], script[-1] + 1]
