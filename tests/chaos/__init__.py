"""What scripts/chaos is made of: servers that are killed, clients that note every answer, and the checks."""
