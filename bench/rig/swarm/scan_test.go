package swarm

import (
	"fmt"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
)

// every split of a text into three pieces.
func pieces(text string, f func(pieces []string)) {
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			f([]string{text[:i], text[i:j], text[j:]})
		}
	}
}

func TestStampsAreFoundHoweverTheyAreCut(t *testing.T) {
	text := "a@b@@1763738705123456789c@@176373870512345678x@@1763738705123456790@"
	want := []int64{1763738705123456789, 1763738705123456790}
	pieces(text, func(pieces []string) {
		var s scanner
		var got []int64
		for _, p := range pieces {
			s.scan([]byte(p), func(nanos int64) { got = append(got, nanos) })
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: got %d, want %d", pieces, got, want)
		}
	})
}

func TestChunksAreJoinedHoweverTheyAreCut(t *testing.T) {
	var b strings.Builder
	w := httputil.NewChunkedWriter(&b)
	for _, part := range []string{"first", "the second, which is longer", "3"} {
		if _, err := fmt.Fprint(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\r\n")
	pieces(b.String(), func(pieces []string) {
		var c chunks
		var got strings.Builder
		ended := false
		for _, p := range pieces {
			end, err := c.take([]byte(p), func(data []byte) { got.Write(data) })
			if err != nil {
				t.Fatalf("%q: %v", pieces, err)
			}
			ended = ended || end
		}
		if got.String() != "firstthe second, which is longer3" || !ended {
			t.Fatalf("%q: got %q, ended %v", pieces, got.String(), ended)
		}
	})
	var c chunks
	if _, err := c.take([]byte("HTTP/1.1"), func([]byte) {}); err == nil {
		t.Error("took what is no chunk")
	}
}
