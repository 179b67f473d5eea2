"""What a test does to a server: move its clock, inject faults, put messages that no server would put.

It exists only where ``/control/v1`` is enabled. No other room knows of it; faults reach calls through the
wrappers of ``http`` and ``gateway``.
"""
