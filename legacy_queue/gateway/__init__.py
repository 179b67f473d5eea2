"""Azure's queue and blob protocol, served over embedded storage, and under ``--control`` over any."""
