"""The page at ``/`` and how a browser signs in, with its template, script and style.

It shows what ``/inspect/v1`` and the journal say, and changes nothing. What a task's author wrote is text
here, never HTML.
"""
