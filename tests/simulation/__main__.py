"""``python -m tests.simulation``: see ``--help``. It patches the process before anything else is imported."""

from gevent import monkey

monkey.patch_all()

from tests.simulation.command import main  # noqa: E402

if __name__ == "__main__":
    main()
