"""claimWork: the long poll of workers that never see a message.

One of the requests that wait for a pool polls for all of them. It polls at once when this process offers a
task there. A message that is received here is claimed or made visible again. Only ``tasks`` writes claims.
"""
