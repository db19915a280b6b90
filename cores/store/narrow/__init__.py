"""Stores whose lanes take a beat's channels one part after the other."""
