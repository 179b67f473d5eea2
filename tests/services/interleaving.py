"""Two things done at once, their port calls in every order: no thread, no luck."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from greenlet import getcurrent, greenlet


def pausing(_name: str, call: Callable[[], Any]) -> Any:
    """Around a port call: whoever runs the greenlets decides when it happens."""
    if getcurrent().parent:
        getcurrent().parent.switch()
    return call()


def run(actions: Sequence[Callable[[], Any]], choose: Callable[[int], int]) -> list[Any]:
    """What each action returns or raises; ``choose`` is told how many could go on, and says which does."""
    results: list[Any] = [None] * len(actions)

    def act(index: int) -> None:
        try:
            results[index] = actions[index]()
        except BaseException as error:  # noqa: BLE001 - it is what came of the action, a crash too
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
    """Play the scene once for each order there is; how many there were.

    The scene is handed the ``choose`` that it gives to ``run``, and builds everything afresh.
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
