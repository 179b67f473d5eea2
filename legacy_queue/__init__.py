"""A Taskcluster queue for workers that still poll Azure queues."""

__version__ = "0.1.0"
