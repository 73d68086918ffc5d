"""Small networks and the mathematics around them: pure torch, no dataset, no policy."""
