"""Implements the ports with SQLite or memory (``embedded``), Azure or Azurite (``azure``), and AMQP."""
