"""Explains why a task waits and what is in a queue, for the web page, ``status`` and ``/inspect/v1``.

It only reads. Looking at a message never hides it from a worker. No other package of the services imports it.
"""
