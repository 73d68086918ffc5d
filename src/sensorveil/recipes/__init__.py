"""Recipes: what a paper measured, on which data, with which settings, and its own figures."""
