"""Events: to the broker, and to the streams of ``GET /events``.

A transition says which events it has; here they are sent, and confirmed by the broker. None is stored: one
that was not confirmed is published again from the task, which ``recovery`` sees to. What was published is in
the memory of this process for a while, for streams and pages.
"""
