"""The HTTP contract as a Flask application.

At the top is the way of each request: path, Hawk, scopes, body, answer, log. ``endpoints`` declares what can
be called, ``page`` is for eyes. Nothing here decides what a task becomes, or reads storage by itself.
"""
