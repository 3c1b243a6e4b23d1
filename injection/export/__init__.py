"""A contaminated corpus in the files that other trainers read, its ledger in their coordinates."""
