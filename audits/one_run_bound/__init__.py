"""A lower bound on ε from one trained model, whose members were drawn by independent coins."""
