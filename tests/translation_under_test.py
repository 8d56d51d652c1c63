"""Encoder and decoder of CoVe's translation put together, as the trunk and the objective do between them."""

from __future__ import annotations

from torch import Tensor, nn

from foretext.nn.translation import AttentionDecoder, ContextEncoder, DecoderState, TranslationConfig


class TranslationModel(nn.Module):
    """Encoder and decoder."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.encoder = ContextEncoder(config)
        self.decoder = AttentionDecoder(config)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def encode(self, x_BSE: Tensor, mask_BS: Tensor | None = None) -> DecoderState:
        """The sources read, and the decoder before its first word."""
        return self.decoder.start(self.encoder(x_BSE, mask_BS))

    def decode_step(self, ids_B: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits [B, V] of the word after these, and the state with them read."""
        read_BD, state = self.decoder.step(ids_B, state)
        return self.decoder.logits(read_BD), state

    def forward(
        self, x_BSE: Tensor, before_BT: Tensor, mask_BS: Tensor | None = None, mask_BT: Tensor | None = None
    ) -> Tensor:
        """h̃ [B, T, D] of the decoder that is told the right words; see `AttentionDecoder.forward`."""
        return self.decoder(before_BT, self.encoder(x_BSE, mask_BS), mask_BT)
