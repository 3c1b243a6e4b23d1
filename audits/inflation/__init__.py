"""How inflated is a score? Members against clean twins, item by item."""
