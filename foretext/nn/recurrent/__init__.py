"""LSTMs and what reads words for them: AWD-LSTM, the biLM, CoVe, cross-view training."""
