"""Agent programs as players: somebody else's program in a jail of its own, with the arena's tools and one provider's endpoint."""
