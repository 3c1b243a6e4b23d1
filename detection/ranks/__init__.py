"""One pass by several processes: a slice each."""
