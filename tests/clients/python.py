"""taskcluster 3.0.2 of PyPI, which scriptworker uses, made to run on today's Python."""

import base64
import warnings

# Python 3.9 removed this function. createTemporaryCredentials and every signed call of the client need it.
setattr(base64, "encodestring", base64.encodebytes)  # noqa: B010  not in its types

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore"
    )  # after a fresh install, the client is compiled here, and its old string escapes cause warnings
    import taskcluster
    import taskcluster.client

__all__ = ["taskcluster"]
