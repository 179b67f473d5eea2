"""What is remembered of workers, and apart from it who called and how; and the signed URLs that workers poll.

It is bookkeeping: a record that cannot be written never fails a claim. The queue of a signed URL exists
before the URL is given out.
"""
