"""Distributions fitted to noisy answers: junction trees, inference, estimation, sampling."""
