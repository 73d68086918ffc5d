"""Obfuscators: one file a system, one contract for all."""
