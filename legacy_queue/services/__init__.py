"""The use cases of the queue. Each reads, lets the domain decide, writes, and publishes.

Each package says in its docstring what it is for. The module ``services`` makes the services of a process.
The caller is already authorized. Nothing here knows about HTTP, a vendor's SDK, or how a process is started.
"""
