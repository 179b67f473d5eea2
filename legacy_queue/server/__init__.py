"""gunicorn with its gevent worker, TLS and signals."""
