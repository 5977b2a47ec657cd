"""The backends that compute fast, a room for each, and the choice between them."""
