"""Arrays whose ends touch memory that nobody may read: reads are found whose value is dropped."""
