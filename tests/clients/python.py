"""PyPI's taskcluster 3.0.2, as scriptworker uses it, made to run on the Python of today."""

import base64
import warnings

# Gone since Python 3.9; the client's createTemporaryCredentials and each of its signed calls need it.
base64.encodestring = base64.encodebytes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a fresh install compiles its old escapes here
    import taskcluster
    import taskcluster.client

__all__ = ["taskcluster"]
