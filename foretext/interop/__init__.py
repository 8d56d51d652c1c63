"""Meeting points with other libraries."""
