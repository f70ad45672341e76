package main

// nearest is the name with the fewest edits from word. names must not be empty.
func nearest(word string, names []string) string {
	best, bestDistance := "", 1<<30
	for _, name := range names {
		if d := editDistance(word, name); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
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
