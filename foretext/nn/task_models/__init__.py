"""Models of a task's own over features of words: taggers, classifiers, pairs."""
