"""The HTTP contract as a Flask application.

The modules of this folder carry each request through its path, signature, scopes, body, answer and log.
``endpoints`` declares what can be called, ``page`` has the web pages. Nothing here decides what happens to a
task, or reads storage itself.
"""
