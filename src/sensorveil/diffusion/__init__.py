"""Diffusion models in plain PyTorch: no dataset and no policy is known here."""
