"""What happens to a task: create, claim, report, cancel, and its group, dependents and priority.

Only ``changes`` changes a stored task, and only ``work_messages`` changes its messages. If this process dies,
``recovery`` completes what was begun here. No module here waits, or runs by itself.
"""
