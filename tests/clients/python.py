"""PyPI's taskcluster 3.0.2, as scriptworker uses it, made to run on the Python of today."""

import base64
import warnings

# Python 3.9 removed it; the client's createTemporaryCredentials and each of its signed calls need it.
setattr(base64, "encodestring", base64.encodebytes)  # noqa: B010  not in its types

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a fresh install compiles its old escapes here
    import taskcluster
    import taskcluster.client

__all__ = ["taskcluster"]
