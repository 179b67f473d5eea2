"""Publishes events to the broker, and to the streams of ``GET /events``.

A transition says which events it has. Here they are sent, and the broker confirms them. No event is stored.
If the broker does not confirm an event, ``recovery`` derives it from the task and publishes it again.
Published events stay in the memory of this process for a while, for streams and pages.
"""
