"""Serves Azure's queue and blob protocol for embedded storage, and with ``--control`` for every storage."""
