"""The verbs, one file each. A verb turns its options into a request, calls one function and shows what comes back."""
