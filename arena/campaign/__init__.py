"""Campaigns: many players at many problems, journalled line by line, resumed where they were left."""
