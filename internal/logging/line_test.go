package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// injections are what a client or upstream may call itself.
var injections = []string{
	"a\nb", "a\r\nb", "a\n{\"level\":\"info\",\"msg\":\"forged\"}", "\",\"level\":\"error\",\"x\":\"",
	"a\tinfo\tforged\t{\"user\":\"root\"}", "\\", "\\n", "\\u000a", "'\"`",
	"\x1b[2J\x1b]0;title\x07", "\x9b2J", "\u009b2J", "a\u2028b\u2029c\u0085d", "\u202egnp\u2066\u200f", "\x00\x01\x7f",
	"\xff\xfe\xc0\x8a", "\v\f", "\ufeff", "\U000e0041\U0010ffff",
	"ä€😀", strings.Repeat("a", 1<<20), strings.Repeat("\x1b", 1<<20), strings.Repeat("€", 1<<18), "",
}

// logged are all ways in which a text gets into an entry.
func logged(l *zap.Logger, text string) {
	l.Info(text)
	l.Info("m", zap.String("user", text), zap.ByteString("bytes", []byte(text)), zap.Error(errors.New(text)),
		zap.Any("any", map[string]string{"k": text}))
	l.Info("m", zap.Strings("list", []string{text, text}), zap.Stringer("stringer", bytes.NewBufferString(text)),
		zap.Error(fmt.Errorf("w: %w", errors.New(text))))
	l.With(zap.String("context", text)).Warn("m")
	l.Named("sub").Error(text, zap.Namespace("space"), zap.String("user", text))
	klog.InfoS(text, "key", text)
	klog.ErrorS(errors.New(text), text, "key", errors.New(text))
	klog.Warningf("w%s", text)
	log.Print(text)
}

const entries = 9

// One call is one line, which ends nowhere else, is not long, and shows nothing that a terminal
// obeys.
func TestLogCallsAreLines(t *testing.T) {
	for _, format := range Formats {
		for _, text := range injections {
			var out bytes.Buffer
			logger := New("info", format, &out)
			logged(logger, text)
			_ = logger.Sync()
			lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if len(lines) != entries {
				t.Errorf("%s, %.40q: %d lines of %d entries", format, text, len(lines), entries)
			}
			for _, line := range lines {
				if i := strings.IndexFunc(line, func(r rune) bool {
					return !unicode.IsPrint(r) && (r != '\t' || format == "json")
				}); i >= 0 {
					t.Errorf("%s, %.40q: %.40q", format, text, line[i:])
				}
				if len(line) > 2*logLineBytes {
					t.Errorf("%s, %.40q: a line of %d bytes", format, text, len(line))
				}
			}
		}
	}
}

// A text is where it was put, and in no other field.
func TestLogFieldsAreNotForged(t *testing.T) {
	want := []string{"any", "bytes", "error", "level", "msg", "time", "user"}
	for _, text := range injections {
		var out bytes.Buffer
		l := New("info", "json", &out)
		l.Info("m", zap.String("user", text), zap.ByteString("bytes", []byte(text)), zap.Error(errors.New(text)),
			zap.Any("any", "x"))
		_ = l.Sync()
		var entry map[string]any
		if err := json.Unmarshal(out.Bytes(), &entry); err != nil {
			t.Fatalf("%.40q: %v", text, err)
		}
		if keys := slices.Sorted(maps.Keys(entry)); !slices.Equal(keys, want) || entry["level"] != "info" ||
			entry["msg"] != "m" || entry["any"] != "x" {
			t.Errorf("%.40q: %.200v", text, entry)
		}
		if user := entry["user"].(string); user != strings.ToValidUTF8(text, "\ufffd") && len(text) <= logTextBytes &&
			strings.ToValidUTF8(text, "") == text {
			t.Errorf("%.40q became %.40q", text, user)
		}

		out.Reset()
		l = New("info", "console", &out)
		l.Info(text, zap.String("user", text))
		_ = l.Sync()
		columns := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\t")
		if len(columns) != 4 || columns[1] != "info" {
			t.Fatalf("%.40q: columns %.40q", text, columns)
		}
		if err := json.Unmarshal([]byte(columns[3]), &entry); err != nil {
			t.Errorf("%.40q: %v in %.80q", text, err, columns[3])
		}
	}
}

func TestLogEntriesAreBounded(t *testing.T) {
	var out bytes.Buffer
	l := New("info", "json", &out)
	l.Info("many", zap.Strings("list", slices.Repeat([]string{"12345678"}, 1<<16)), zap.String("user", "u"))
	l.Info("long", zap.String("user", strings.Repeat("€", 1<<16)))
	_ = l.Sync()
	lines := strings.Split(out.String(), "\n")
	var many struct {
		Msg          string
		OmittedBytes int
	}
	if err := json.Unmarshal([]byte(lines[0]), &many); err != nil || many.Msg != "many" || many.OmittedBytes < 1<<19 ||
		len(lines[0]) > 200 {
		t.Errorf("%.200s, %v", lines[0], err)
	}
	var long struct{ User string }
	if err := json.Unmarshal([]byte(lines[1]), &long); err != nil || len(long.User) > logTextBytes+8 ||
		!strings.HasSuffix(long.User, "€…") {
		t.Errorf("%.200s, %v", lines[1], err)
	}
}

func FuzzLogLine(f *testing.F) {
	for _, text := range injections {
		if len(text) < 1<<10 {
			f.Add(text, text)
		}
	}
	f.Fuzz(func(t *testing.T, message, value string) {
		var out bytes.Buffer
		l := New("info", "json", &out)
		l.Info(message, zap.String("v", value))
		_ = l.Sync()
		if lines := bytes.Count(out.Bytes(), []byte("\n")); lines != 1 {
			t.Errorf("%d lines: %q", lines, &out)
		}
		var entry struct{ V *string }
		if err := json.Unmarshal(out.Bytes(), &entry); err != nil || entry.V == nil {
			t.Errorf("%v: %q", err, &out)
		}
	})
}
