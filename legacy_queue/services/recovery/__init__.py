"""Why nothing is lost: what finishes the work of a call whose process died, and what time brings.

Timers say which task needs a look, and when; the resolver and the sweeper take it and call ``advance``, which
does what the stored task needs. ``jobs`` says of each job what it is for, when it is done, and its defaults.
Nothing here decides what a task becomes (that is the domain), and each operation may be repeated by several
processes.
"""
