"""One file for each version of the schema; a version that was released is never edited."""
