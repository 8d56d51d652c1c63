"""Import, export, and other libraries."""
