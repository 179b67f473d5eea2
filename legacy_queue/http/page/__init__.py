"""The web pages under ``/`` and ``/ui``: their templates, script and style, and how a browser signs in.

The pages show what ``/inspect/v1`` and the journal say. They change a task only through the forms of
``actions``. The templates escape whatever the author of a task wrote, so it is never HTML.
"""
