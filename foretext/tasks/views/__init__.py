"""Views: what can be read of a row beside a trunk's states, and the head that reads any number of them."""
