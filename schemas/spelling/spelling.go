// Package spelling finds the word that somebody meant.
//
// Invariant: a word is only suggested when fewer than about half of its letters would have
// to change. Caveat: letters are bytes; the known words are ASCII.
package spelling

import "strings"

// longest is the length of a word that is taken for a misspelt one.
const longest = 64

// Nearest returns the known word that differs from word in the fewest letters, whatever their
// case, of two the one that begins with it; "" when none is near.
func Nearest(word string, known []string) string {
	word = strings.ToLower(strings.TrimSpace(word))
	if len(word) > longest {
		return ""
	}

	best, least := "", 2*(len(word)/2+1)
	for _, k := range known {
		lower := strings.ToLower(k)
		d := 2 * Distance(word, lower)
		if strings.HasPrefix(lower, word) {
			d--
		}

		if d < least {
			best, least = k, d
		}
	}

	return best
}

// Distance is Levenshtein's: the number of letters to insert, delete or change.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}

	return row[len(b)]
}
