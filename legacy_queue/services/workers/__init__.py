"""What is remembered of workers: when they were seen, their quarantine; and the signed URLs that they poll.

It is bookkeeping: a record that cannot be written never fails a claim. The queue of a signed URL exists
before the URL is given out.
"""
