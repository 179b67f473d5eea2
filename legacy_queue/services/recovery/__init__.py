"""Finishes what a dead process left unfinished, and does what becomes due as time passes.

``process`` knows which tasks lack effects of a call, and when each task is due. The resolver and the sweeper
look at such a task and call ``advance``, which does what the stored task needs. ``job_definitions`` says what
each job is for, how often it is done, and its defaults. Nothing here decides what a task becomes: the domain
does. Several processes may repeat each operation.
"""
