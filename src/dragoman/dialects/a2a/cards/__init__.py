"""Agent cards: their document forms, rules, canonical bytes and signatures."""
