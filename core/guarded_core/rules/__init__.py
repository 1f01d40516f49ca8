"""Rules over effective arguments: the engine, the kinds, the facts they see."""
