"""claimWork: the long poll of workers that never see a message.

Of the requests that wait for a pool, one polls for all, at once when this process offers a task there. A
message that is received here is claimed or made visible again; a claim itself is decided and written by
``tasks`` alone.
"""
