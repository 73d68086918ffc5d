"""The command line: thin, it calls what a notebook would call."""
