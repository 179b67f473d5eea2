"""A storage account in one SQLite file, or in the memory of this process.

It makes the same promises as Azure to the stores and, through the gateway, to workers. In a file, everything
that was answered survives a kill of the server.
"""

from legacy_queue.adapters.embedded.backup import back_up
from legacy_queue.adapters.embedded.embedded_account import EmbeddedAccount
from legacy_queue.adapters.embedded.storage_file import StorageFile

__all__ = ["EmbeddedAccount", "StorageFile", "back_up"]
