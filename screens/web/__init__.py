"""The app in a browser: `pkb-arena serve`. One owner, and spectators who follow the running journal."""
