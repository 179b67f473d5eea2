"""Why does a task wait, and what holds a queue? For the page, ``status`` and ``/inspect/v1``.

It only reads: to look at a message never hides it from a worker. No other room knows of it.
"""
