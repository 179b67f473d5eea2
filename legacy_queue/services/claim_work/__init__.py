"""claimWork: the long poll of workers that never see a message.

One poller for each pool of a process feeds all its waiting requests, and is woken by an offer. A message that
is received here is claimed or made visible again; a claim itself is decided and written by ``tasks`` alone.
"""
