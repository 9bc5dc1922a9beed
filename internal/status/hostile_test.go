package status

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
)

// fill puts text into every string that a value holds.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, text)
		fill(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text)
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	}
}

// Whatever is in any part of a report, its text moves no cursor and begins no line.
func TestAnyReportIsText(t *testing.T) {
	report := func(text string) string {
		var r Report
		fill(reflect.ValueOf(&r).Elem(), text)
		r.Watches.Total = 3 // not all of them are shown
		var out strings.Builder
		if err := r.WriteText(&out, DefaultQuery()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	lines := strings.Count(report("x"), "\n")
	for _, text := range []string{"\x1b[2J", "a\nb", "a\r", "\u009b2J", "\u202e", "a\u2028b", "\x00\x7f", "\xff"} {
		shown := report(text)
		if n := strings.Count(shown, "\n"); n != lines {
			t.Errorf("%q: %d lines, want %d", text, n, lines)
		}
		if i := strings.IndexFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }); i >= 0 {
			t.Errorf("%q is shown as %.60q", text, shown[max(0, i-30):])
		}
	}
}
