"""Azure's own refusals, by the code that a client of Azure Queue Storage knows.

Source: "Common REST API error codes" and "Queue Storage error codes" of Azure's REST reference, whose
sentences these are; which of them answers what: "Queue" in design/azurite.md.
"""

_ERRORS = {
    "AuthenticationFailed": (
        403,
        (
            "Server failed to authenticate the request. Make sure the value of Authorization header is "
            "formed correctly including the signature."
        ),
    ),
    "AuthorizationPermissionMismatch": (
        403,
        "This request is not authorized to perform this operation using this permission.",
    ),
    "InvalidQueryParameterValue": (
        400,
        "Value for one of the query parameters specified in the request URI is invalid.",
    ),
    "InvalidUri": (400, "The requested URI does not represent any resource on the server."),
    "MessageNotFound": (404, "The specified message does not exist."),
    "MissingRequiredQueryParameter": (
        400,
        "A query parameter that's mandatory for this request is not specified.",
    ),
    "OutOfRangeQueryParameterValue": (
        400,
        "One of the query parameters specified in the request URI is outside the permissible range.",
    ),
    "PopReceiptMismatch": (
        400,
        "The specified pop receipt did not match the pop receipt for a dequeued message.",
    ),
    "QueueNotFound": (404, "The specified queue does not exist."),
    "UnsupportedHttpVerb": (405, "The resource doesn't support specified Http Verb."),
    "UnsupportedQueryParameter": (
        400,
        "One of the query parameters specified in the request URI is not supported.",
    ),
}


class AzureError(Exception):
    """A refusal as Azure words it; ``detail`` is one more sentence that says what would be accepted.

    A refusal to authenticate never has one: it says that, not why.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        self.status, sentence = _ERRORS[code]
        self.code = code
        self.message = f"{sentence} {detail}".rstrip()
        super().__init__(self.message)
