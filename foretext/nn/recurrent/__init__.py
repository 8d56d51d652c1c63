"""LSTMs and their inputs: AWD-LSTM, the biLM, CoVe, cross-view training."""
