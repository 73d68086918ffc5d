"""Training a method where the data stays: clients and a server as pure functions, and engines."""
