"""The rules as naive loops over lists of words, for texts of ASCII words and single spaces."""

import string


def words_of(text):
    stripped = (word.strip(string.punctuation).lower() for word in text.split())
    return [word for word in stripped if word]


def ngrams(words, n):
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def contains(words, part):
    return any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))


def item_share(item, document, n, ignored=frozenset()):
    """The share and the number of the item's distinct n-grams that the document contains."""
    wanted = {*ngrams(words_of(item), n)} - ignored
    shared = wanted & {*ngrams(words_of(document), n)}
    return (len(shared) / len(wanted) if wanted else 0.0), len(shared)


def line_share(items, line, n):
    """The share and the number of a line's n-grams that are in a line of any item."""
    wanted = {
        gram for item in items for part in item.split("\n") for gram in ngrams(words_of(part), n)
    }
    line_grams = ngrams(words_of(line), n)
    shared = [gram for gram in line_grams if gram in wanted]
    return (len(shared) / len(line_grams) if line_grams else 0.0), len(shared)


def longest_run(item, document, n):
    """The number of words of the longest run that both contain, or 0 if it has fewer than n."""
    item_words, words = words_of(item), words_of(document)
    lengths = [
        length
        for start in range(len(item_words))
        for length in range(n, len(item_words) - start + 1)
        if contains(words, item_words[start : start + length])
    ]
    return max(lengths, default=0)
