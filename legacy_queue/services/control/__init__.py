"""Lets a test control a server: move its clock, inject faults, and put messages that no server would put.

It exists only if ``/control/v1`` is enabled. No other package of the services imports it. Faults reach calls
through wrappers in ``http`` and ``gateway``.
"""
