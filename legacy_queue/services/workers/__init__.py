"""Keeps records of workers and of who has called how, and gives out the signed URLs that workers poll.

These records are bookkeeping: if one cannot be written, no claim fails. The queue of a signed URL exists
before the URL is given out.
"""
