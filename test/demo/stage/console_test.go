package stage

import (
	"strings"
	"testing"
)

func TestLinesStandAboveTheStatusOfATerminal(t *testing.T) {
	for _, c := range []struct {
		name  string
		width func() int
		want  string
	}{
		{"no terminal: plain lines", nil, "   one\n   two\n"},
		{"a wide terminal", func() int { return 80 },
			"building" + eraseLine + "   one\n   two\nbuilding" + eraseLine},
		{"a terminal narrower than the status", func() int { return 6 },
			"buil…" + eraseLine + "   one\n   two\nbuil…" + eraseLine},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			console := NewConsole(&out)
			console.mu.width = c.width
			console.Status("building")
			console.Line("%s", "one\ntwo\n")
			console.Status("")
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	for arg, want := range map[string]string{"plain": "plain", "*": "'*'", "it's": `'it'\''s'`, "a=b:.c": "a=b:.c"} {
		if got := Quote([]string{arg})[0]; got != want {
			t.Errorf("Quote(%q) = %s, want %s", arg, got, want)
		}
	}
}
