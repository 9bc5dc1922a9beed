package logging

import (
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

const (
	// logTextBytes is how much of one text, and logLineBytes of one entry, is logged: what clients
	// and upstream send may be a megabyte. Ten texts fit that are six times as long when they are
	// escaped, so that one field cannot make the others be left out.
	logTextBytes = 4 << 10
	logLineBytes = 256 << 10
)

// lineEncoder makes exactly one line of an entry, whatever is in it: no value begins another line
// or column, moves the cursor of a terminal or turns the direction of its text, and none is long.
// It stands where all entries pass, so that no call has to clean what it logs.
type lineEncoder struct{ zapcore.Encoder }

// Clone implements zapcore.Encoder.
func (e lineEncoder) Clone() zapcore.Encoder { return lineEncoder{e.Encoder.Clone()} }

// AddString implements zapcore.ObjectEncoder.
func (e lineEncoder) AddString(key, value string) { e.Encoder.AddString(key, shortText(value)) }

// AddByteString implements zapcore.ObjectEncoder.
func (e lineEncoder) AddByteString(key string, value []byte) { e.AddString(key, string(value)) }

// EncodeEntry implements zapcore.Encoder.
func (e lineEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = strings.ReplaceAll(shortText(entry.Message), "\t", " ") // a tab ends a column of the console format
	with := e.Clone()
	for _, f := range fields {
		f.AddTo(with)
	}
	line, err := with.(lineEncoder).Encoder.EncodeEntry(entry, nil)
	if err == nil && line.Len() > logLineBytes {
		size := line.Len()
		line.Free()
		// lists are not shortened: they are left out
		line, err = e.Encoder.EncodeEntry(entry, []zapcore.Field{zap.Int("omittedBytes", size)})
	}
	if err != nil {
		return nil, err
	}
	escapeUnprintable(line)
	return line, nil
}

// shortText holds no more of a text than is logged.
func shortText(text string) string {
	if len(text) <= logTextBytes {
		return text
	}
	return strings.ToValidUTF8(text[:logTextBytes], "") + "…"
}

// escapeUnprintable replaces what is not printable in an encoded entry, but for the columns' tabs
// and the last line end, by JSON's escape for it. In the JSON format such runes are in strings
// only.
func escapeUnprintable(line *buffer.Buffer) {
	text := strings.TrimSuffix(line.String(), "\n") // a copy
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' || r == utf8.RuneError }
	if !strings.ContainsFunc(text, unprintable) {
		return
	}
	line.Reset()
	for _, r := range text {
		switch {
		case !unprintable(r):
			line.AppendString(string(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			appendEscape(line, high)
			appendEscape(line, low)
		default:
			appendEscape(line, r)
		}
	}
	line.AppendByte('\n')
}

func appendEscape(line *buffer.Buffer, r rune) {
	const digits = "0123456789abcdef"
	line.AppendString(`\u`)
	for shift := 12; shift >= 0; shift -= 4 {
		line.AppendByte(digits[r>>shift&0xf])
	}
}
