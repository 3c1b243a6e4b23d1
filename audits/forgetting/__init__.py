"""How fast are members forgotten: d′, extraction and accuracy against tokens since exposure."""
