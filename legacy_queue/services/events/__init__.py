"""Events: to the broker, and to the streams of ``GET /events``.

A transition says which events it has; here they are sent, and confirmed by the broker. Nothing is stored:
an event that was not confirmed is published again from the task, which ``recovery`` sees to.
"""
