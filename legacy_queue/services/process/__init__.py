"""What a process does without a request, and what it still owes to the tasks that it writes.

It knows that there are tasks by their names alone: what a task needs, ``tasks`` and ``recovery`` say, which
use this room.
"""
