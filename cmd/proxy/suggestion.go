package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// flagNames returns the names of all flags, sorted.
func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return names
}

// nearest returns the name that given was most likely meant to be, or "" when none is near.
func nearest(given string, names []string) string {
	best, bestDistance := "", len(given)/3+1
	for _, name := range names {
		d := editDistance(plainName(given), plainName(name))
		if sameWords(given, name) {
			d = 0
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// plainName drops what differs between spellings of one name: historyBytes, history_bytes, history-bytes.
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// sameWords reports whether two names are made of the same words: tls-listen, listen-tls.
func sameWords(a, b string) bool {
	words := func(name string) []string {
		return slices.Sorted(slices.Values(strings.Split(strings.ReplaceAll(name, "_", "-"), "-")))
	}
	return slices.Equal(words(a), words(b))
}

// editDistance is the Levenshtein distance between two short strings, in bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
