"""Files as clean text, tables and documents, and these as token shards."""
