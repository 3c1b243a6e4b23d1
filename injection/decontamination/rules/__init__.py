"""Rules that find the items of a benchmark in documents; each has a file here and in conf/rule."""
