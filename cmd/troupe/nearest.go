package main

import "strings"

// mistypedShare bounds what counts as a typo: one edit for so many bytes of the longer of the two words. With more
// edits the two have nothing to do with each other, and a guess sends the reader the wrong way.
const mistypedShare = 3

// nearest is the name with the fewest edits from word, "" when that one is no likely typo of it.
func nearest(word string, names []string) string {
	best, bestDistance := "", 1<<30
	for _, name := range names {
		if d := editDistance(word, name); d < bestDistance && d*mistypedShare <= max(len(word), len(name)) {
			best, bestDistance = name, d
		}
	}
	return best
}

// didYouMean asks behind a message whether the nearest name, with prefix before it, was meant. It is empty when none is
// near.
func didYouMean(word, prefix string, names []string) string {
	if name := nearest(word, names); name != "" {
		return "; did you mean " + prefix + name + "?"
	}
	return ""
}

// didYouMeanOneOf is didYouMean for a list that is short enough to be shown when none is near.
func didYouMeanOneOf(word string, names []string) string {
	if question := didYouMean(word, "", names); question != "" {
		return question
	}
	return "; known are " + strings.Join(names, ", ")
}

// editDistance counts the insertions, deletions and replacements of bytes that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j]+1, row[j+1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
