"""An unpatched and a patched Azurite side by side, both on disk."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from legacy_queue.adapters.azurite import Azurite
from tests.adapters.azurite_patches.wire import Wire

CHECK_SAVES = Path(__file__).with_name("check_saves.js")


class Pair:
    """Stock and patched Azurite, each over a folder of its own."""

    def __init__(self, folders: list[Path], azurite_dir: Path) -> None:
        self._azurite_dir = azurite_dir
        self._use(folders)
        self.wires: list[Wire] = []

    def _use(self, folders: list[Path]) -> None:
        self.folders = folders
        each = zip(folders, ("none", "all"), strict=True)
        self.azurites = [Azurite(folder, self._azurite_dir, patches=patches) for folder, patches in each]

    def restart_swapped(self) -> None:
        """Start the stopped pair again, each over the folder that the other has written."""
        self._use(self.folders[::-1])
        self.start()

    def each(self, act: Callable[[Azurite], object]) -> None:
        """Call it for both at the same time."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(act, self.azurites))

    @property
    def stock(self) -> Wire:
        return self.wires[0]

    @property
    def patched(self) -> Wire:
        return self.wires[1]

    def start(self) -> None:
        self.each(lambda azurite: azurite.start())
        self.wires = [Wire(azurite.ports) for azurite in self.azurites]

    def stop(self) -> None:
        for az in self.wires:
            az.close()
        self.each(lambda azurite: azurite.stop())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, azurite_dir: Path) -> Iterator[Pair]:
    """Running; a test leaves them running. Each save of the patched one is compared with LokiJS's own."""
    running = Pair([tmp_path_factory.mktemp("none"), tmp_path_factory.mktemp("all")], azurite_dir)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("NODE_OPTIONS", f'--require="{CHECK_SAVES}"')
        stack.callback(running.stop)
        running.start()
        yield running
