"""Keeps artifacts: their rows, their bytes in blobs, and the signed URLs for their uploads.

The row is written first, and says which bytes belong to it. Bytes that no row names are removed. The server
never fetches the url of a reference artifact. Only ``tasks.changes`` changes a task.
"""
