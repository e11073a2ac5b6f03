"""Agent programs as players: each in a jail of its own, with the arena's tools and one provider's endpoint."""
