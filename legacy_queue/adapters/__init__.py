"""The ports on SQLite or memory (``embedded``), on Azure and Azurite (``azure``), and on AMQP."""
