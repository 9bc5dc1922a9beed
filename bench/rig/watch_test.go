package rig

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

func read(text string) *Watch {
	return &Watch{body: io.NopCloser(strings.NewReader(text)), in: bufio.NewReaderSize(strings.NewReader(text), 16)}
}

func TestWatchEvents(t *testing.T) {
	w := read(`{"type":"ADDED","object":{"kind":"Pod","metadata":` +
		`{"name":"a","namespace":"n","uid":"u","resourceVersion":"17"}}}` + "\n" +
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20",` +
		`"annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n" +
		`{"type":"ERROR","object":{"kind":"Status","code":410}}` + "\n")
	f := func(kind, key string, rv uint64, end bool) {
		t.Helper()
		e, err := w.Next()
		if err != nil || e.Type != kind || e.Key() != key || e.RV != rv || e.InitialEnd() != end {
			t.Errorf("Next = %+v, %v", e, err)
		}
	}
	f("ADDED", "n/a", 17, false)
	f("BOOKMARK", "/", 20, true)
	f("ERROR", "/", 0, false)
	if _, err := w.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if _, err := read(`{"type":"ADD`).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("inside an event: %v", err)
	}
	if _, err := read("{}\n").Next(); err == nil {
		t.Error("took what is no event")
	}
}
