"""What every command writes, recorded so that two versions of the code can be compared."""
