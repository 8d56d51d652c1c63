"""Task models over features of words: taggers, classifiers, and models of pairs."""
