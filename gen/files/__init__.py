"""Reading and writing files that may be anything."""
