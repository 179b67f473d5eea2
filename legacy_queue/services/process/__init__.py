"""A server process among the others: its threads, the effects that it still owes, and who else is alive.

Nothing here knows the effects of a write, or changes a task. ``tasks`` says what is owed, and ``recovery``
does it.
"""
