"""A campaign as it goes on, or as it went: problems by players, and any cell to replay."""
