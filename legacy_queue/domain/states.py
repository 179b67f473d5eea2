"""The states of a task: ``unscheduled`` before its first run, then the state of its last run."""

UNRESOLVED = ("unscheduled", "pending", "running")
RESOLVED = ("completed", "failed", "exception")
