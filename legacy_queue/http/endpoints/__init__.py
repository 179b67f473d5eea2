"""The endpoints: each a declaration and a few lines that call a service and make JSON of its answer.

Routing, checks and the reference come from the declarations. A handler gets services only by
``call.authorize``, and never checks a body or renders an error itself.
"""
