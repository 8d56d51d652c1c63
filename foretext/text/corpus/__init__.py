"""Files as clean text, tables and documents, and documents as token shards."""
