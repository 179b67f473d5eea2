"""A task's life: create, claim, report, cancel, its group, its dependents and its priority.

``changes`` is the one way in which a stored task changes, ``work_messages`` the one way to its message. What
was begun here is ended by ``recovery`` if this process dies. No module here waits or runs by itself.
"""
