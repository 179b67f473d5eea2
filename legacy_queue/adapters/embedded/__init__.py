"""A storage account in one SQLite file, or in the memory of this process: what is answered survives a kill.

It makes the same promises as Azure to stores, and through the gateway to workers.
"""

from legacy_queue.adapters.embedded.backup import back_up
from legacy_queue.adapters.embedded.embedded_account import EmbeddedAccount
from legacy_queue.adapters.embedded.storage_file import StorageFile

__all__ = ["EmbeddedAccount", "StorageFile", "back_up"]
