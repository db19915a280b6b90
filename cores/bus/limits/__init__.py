"""Limits: no burst leaves the memory that the host has set and locked."""
