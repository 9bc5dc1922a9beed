package admission

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// textLimitBytes bounds a text about a review, because parts of it come from the review, and may be
// as long as that.
const textLimitBytes = 600

// noteLimit bounds the notes about a pod that are logged and returned as warnings.
const noteLimit = 4

// notInjected is the warning about a pod that unexpectedly gets no sidecar.
func notInjected(err error) string { return "spillway: not injected: " + sanitize(err.Error()) }

// sanitize makes a text fit into a header, in which the API server returns it: without control
// characters, and not too long.
func sanitize(text string) string {
	if len(text) > textLimitBytes {
		text = text[:textLimitBytes]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// sanitizeNotes sanitizes the first noteLimit notes.
func sanitizeNotes(notes []string) (all []string) {
	for _, n := range notes[:min(len(notes), noteLimit)] {
		all = append(all, sanitize(n))
	}
	return all
}
