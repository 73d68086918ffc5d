"""The papers' experiments: recipes, the results that are stored, and what renders them."""
