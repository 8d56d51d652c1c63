"""Views: what a head can read of a row besides a trunk's states, and the head that reads any number of them."""
