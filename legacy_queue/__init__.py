"""A Taskcluster queue for workers that still poll Azure queues."""
