"""Artifacts: their rows, their bytes in blobs, and the signed URLs of their uploads.

The row comes first and says what bytes belong to it; bytes that no row names are removed. A url of a
reference artifact is never fetched, and a task changes through ``tasks.changes`` alone.
"""
