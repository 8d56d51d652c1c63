"""The parts that systems are built from: attention, transformer blocks, recurrent layers, softmaxes."""
