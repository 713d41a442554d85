"""How fast genepool is, what it learns, and whether two versions of it train the same bits."""
