"""The numbers of liveness: how a process shows that it lives, and when another takes over for it.

What a killed process owed is done within 30 s: ``DEAD_AFTER`` since its last beat, ``READ_EVERY`` until
another looks, and some seconds for the work. Nobody compares the clocks of two machines: each process
measures by its own how long a row has not changed.
"""

from datetime import timedelta

# Often enough that two beats may fail before the process looks dead.
BEAT = timedelta(seconds=4)
# A process takes its own row for one that others trust up to this age. It must end well before DEAD_AFTER:
# a call that begins now still has to reach storage.
TRUSTED_FOR = timedelta(seconds=9)
# A row that has not changed for so long is that of a dead process. It is more than three beats, and more than
# one request to storage may take (7 s).
DEAD_AFTER = timedelta(seconds=15)
# Between two readings of the rows of the others, if nobody waits for their offers.
READ_EVERY = timedelta(seconds=5)
# After a write whose answer never came, its effects are repeated after this time: it may still arrive.
UNKNOWN_WRITE = timedelta(seconds=15)
