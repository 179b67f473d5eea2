"""The times by which a process shows that it is alive, and after which another takes over for it.

What a killed process owed is done within 30 s: ``DEAD_AFTER`` after its last beat, up to ``READ_EVERY`` until
another process looks, and some seconds for the work. Clocks of different machines are never compared: each
process measures by its own clock for how long a row has not changed.
"""

from datetime import timedelta

# How often a process writes its row. Two beats may fail before the process looks dead.
BEAT = timedelta(seconds=4)
# Up to this age of its own row, a process relies on the others to see it as alive. This is well below
# DEAD_AFTER, because a call that begins now still has to reach storage.
TRUSTED_FOR = timedelta(seconds=9)
# If a row has not changed for this long, its process counts as dead. This is more than three beats, and
# longer than one request to storage may take (7 s).
DEAD_AFTER = timedelta(seconds=15)
# How often a process reads the rows of the others while none of its requests waits for work.
READ_EVERY = timedelta(seconds=5)
# If the answer to a write never came, its effects are repeated after this time: the write may still arrive.
UNKNOWN_WRITE = timedelta(seconds=15)
