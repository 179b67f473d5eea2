"""A storage account in this process's memory: no Node, nothing to install, nothing survives.

It makes the same promises as Azure to the stores, and to workers through the gateway. A lock is held only
while values are changed, never while something is waited for, so threads and greenlets are the same to it.
"""

from legacy_queue.adapters.memory.account import MemoryAccount

__all__ = ["MemoryAccount"]
