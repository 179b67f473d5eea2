"""``python -m tests.simulation --help`` explains it. gevent patches the process before any other import."""

from gevent import monkey

monkey.patch_all()

from tests.simulation.command import main  # noqa: E402

if __name__ == "__main__":
    main()
