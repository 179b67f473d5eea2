"""Azure Storage, or an Azurite, behind the ports.

Import this only after gevent has patched: the SDK takes its locks and sockets when it is imported.
"""

from legacy_queue.adapters.azure.account import AzureAccount

__all__ = ["AzureAccount"]
