"""The use cases: read, decide (domain), schedule, hold, write, publish.

Each room is a package and says what it is for; ``services`` makes the services of a process. The caller
is authorized already: nothing here knows of HTTP, of a vendor's SDK, or of how a process is started.
"""
