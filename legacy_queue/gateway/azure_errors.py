"""Azure's own refusals, by the code that a client of Azure Storage knows.

Source: "Common REST API error codes", "Queue Storage error codes" and "Blob Storage error codes" of Azure's
REST reference, whose sentences these are; which of them answers what: design/azurite.md.
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
    "BlobAlreadyExists": (409, "The specified blob already exists."),
    "BlobNotFound": (404, "The specified blob does not exist."),
    "ConditionNotMet": (
        412,
        "The condition specified using HTTP conditional header(s) is not met.",
    ),
    "InvalidBlockList": (400, "The specified block list is invalid."),
    "InvalidHeaderValue": (
        400,
        "The value for one of the HTTP headers is not in the correct format.",
    ),
    "InvalidInput": (400, "One of the request inputs is not valid."),
    "InvalidQueryParameterValue": (
        400,
        "Value for one of the query parameters specified in the request URI is invalid.",
    ),
    "InvalidRange": (416, "The range specified is invalid for the current size of the resource."),
    "InvalidUri": (400, "The requested URI does not represent any resource on the server."),
    "InvalidXmlDocument": (400, "XML specified is not syntactically valid."),
    "Md5Mismatch": (
        400,
        "The MD5 value specified in the request did not match the MD5 value calculated by the server.",
    ),
    "MessageNotFound": (404, "The specified message does not exist."),
    "MissingContentLengthHeader": (411, "The Content-Length header was not specified."),
    "MissingRequiredHeader": (
        400,
        "An HTTP header that's mandatory for this request is not specified.",
    ),
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
    "RequestBodyTooLarge": (413, "The request body is too large and exceeds the maximum permissible limit."),
    "ServerBusy": (503, "The server is currently unable to receive requests. Please retry your request."),
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
