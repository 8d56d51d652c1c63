"""The verbs, one function each. A verb turns its options into a request, calls one function and shows the result."""
