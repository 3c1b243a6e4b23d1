"""What every command says to bad input: a table of it, and a server that runs its rows."""
