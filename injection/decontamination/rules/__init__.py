"""Rules that find benchmark items in documents; each has a file here and one in conf/matcher."""
