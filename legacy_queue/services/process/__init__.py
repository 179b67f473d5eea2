"""A process among the others: its threads, what it owes to which task, when a task is due, who is alive.

Nothing here knows what the effects of a write are, or does anything to a task: ``tasks`` says what is owed,
``recovery`` does it.
"""
