"""Why nothing is lost: what finishes the work of a call whose process died, and what time brings.

``process`` knows to which task something is owed, and when a task is due. The resolver and the sweeper look
at such a task and call ``advance``, which does what the stored task needs. ``jobs`` says of each job what it
is for, when it is done, and its defaults. Nothing here decides what a task becomes (that is the domain), and
each operation may be repeated by several processes.
"""
